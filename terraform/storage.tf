# Runs write under runs/, long-lived data lies under data/, uploads to the console go nowhere else.
resource "google_storage_bucket" "this" {
  #checkov:skip=CKV_GCP_62:access is in Cloud Audit Logs; usage logs would need a bucket of their own
  name                        = "${var.project}-training"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  versioning {
    enabled = true
  }

  # A week to change one's mind, whatever deleted it.
  soft_delete_policy {
    retention_duration_seconds = 7 * 24 * 3600
  }

  # An age knows neither of the cache, which then names records that are gone, nor of the
  # champion, with whose model every candidate is compared. `python -m pipelines clean` does.
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

  # Checkpoints replace each other every few minutes: old versions of them are the larger bill.
  lifecycle_rule {
    condition {
      days_since_noncurrent_time = 1
      matches_prefix             = ["runs/"]
    }
    action {
      type = "Delete"
    }
  }

  lifecycle_rule {
    condition {
      days_since_noncurrent_time = 30
      num_newer_versions         = 3
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
