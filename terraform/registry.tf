# Without cleanup policies: a schedule or a model may name an image by digest after its tag has moved.
resource "google_artifact_registry_repository" "images" {
  #checkov:skip=CKV_GCP_84:encrypted by Google's keys unless var.encryption_key names another
  repository_id = "images" # Formerly "training": keep that name if you have applied it.
  location      = var.region
  format        = "DOCKER"
  description   = "Images of components and replicas."
  kms_key_name  = var.encryption_key == "" ? null : var.encryption_key

  lifecycle {
    prevent_destroy = true
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
