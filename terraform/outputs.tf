output "github_variables" {
  description = "Variables for GitHub's environment release, as release.yml names them; GitHub has no empty ones."
  value = { for name, value in {
    GOOGLE_CLOUD_PROJECT       = var.project
    GOOGLE_CLOUD_REGION        = var.region
    IMAGE                      = "${google_artifact_registry_repository.images.location}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}/training"
    RELEASE_SERVICE_ACCOUNT    = google_service_account.releaser.email
    VERTEX_ENCRYPTION_KEY      = var.encryption_key
    VERTEX_LABELS              = join(",", [for key, value in var.labels : "${key}=${value}"])
    VERTEX_NETWORK             = var.network
    VERTEX_PIPELINE_ROOT       = "gs://${google_storage_bucket.this.name}/runs"
    VERTEX_SERVICE_ACCOUNT     = google_service_account.runner.email
    VERTEX_TEMPLATE_REPOSITORY = "https://${google_artifact_registry_repository.pipelines.location}-kfp.pkg.dev/${var.project}/${google_artifact_registry_repository.pipelines.repository_id}"
    VERTEX_TENSORBOARD         = google_vertex_ai_tensorboard.this.name
    WORKLOAD_IDENTITY_PROVIDER = google_iam_workload_identity_pool_provider.github.name
  } : name => value if value != "" }
}
