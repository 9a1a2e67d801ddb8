locals {
  # An image that a schedule names by digest keeps the tag of its release or commit, so it stays.
  untagged_retention = "${30 * 24 * 3600}s"
}

resource "google_artifact_registry_repository" "images" {
  #checkov:skip=CKV_GCP_84:encrypted by Google's keys unless var.encryption_key names another
  repository_id = "training"
  location      = var.region
  format        = "DOCKER"
  description   = "Images of components and replicas."
  kms_key_name  = var.encryption_key == "" ? null : var.encryption_key

  cleanup_policies {
    id     = "delete-untagged"
    action = "DELETE"
    condition {
      tag_state  = "UNTAGGED"
      older_than = local.untagged_retention
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_artifact_registry_repository" "pipelines" {
  #checkov:skip=CKV_GCP_84:encrypted by Google's keys unless var.encryption_key names another
  repository_id = "pipelines"
  location      = var.region
  format        = "KFP"
  description   = "Compiled pipelines."
  kms_key_name  = var.encryption_key == "" ? null : var.encryption_key

  depends_on = [google_project_service.this]
}
