# Runs write under runs/; long-lived data is under data/.
resource "google_storage_bucket" "this" {
  #checkov:skip=CKV_GCP_62:Usage logs would need a second bucket; Data Access audit logs can replace them
  name                        = "${var.project}-training"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  versioning {
    enabled = true
  }

  # Deleted objects can be restored for a week, and are billed until then.
  soft_delete_policy {
    retention_duration_seconds = 7 * 24 * 3600
  }

  # Deletion by age ignores the cache, which then refers to deleted records, and the champion, whose
  # model every candidate is compared with. `python -m pipelines clean` respects both.
  dynamic "lifecycle_rule" {
    for_each = var.run_retention_days == 0 ? [] : [var.run_retention_days]
    content {
      condition {
        age            = lifecycle_rule.value
        matches_prefix = ["runs/"]
      }
      action {
        type = "Delete"
      }
    }
  }

  # Checkpoints are replaced every few minutes; their old versions would cost more than the data.
  lifecycle_rule {
    condition {
      days_since_noncurrent_time = 1
      matches_prefix             = ["runs/"]
    }
    action {
      type = "Delete"
    }
  }

  # Two rules: the conditions of one must all be met, which would keep the last versions for ever.
  lifecycle_rule {
    condition {
      days_since_noncurrent_time = 30
    }
    action {
      type = "Delete"
    }
  }

  lifecycle_rule {
    condition {
      num_newer_versions = 3
    }
    action {
      type = "Delete"
    }
  }

  lifecycle_rule {
    condition {
      age = 1
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  dynamic "encryption" {
    for_each = var.encryption_key == "" ? [] : [var.encryption_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.this]
}
