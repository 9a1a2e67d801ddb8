resource "google_vertex_ai_tensorboard" "this" {
  display_name = "training"
  description  = "Curves of all training runs."
  region       = var.region

  dynamic "encryption_spec" {
    for_each = var.encryption_key == "" ? [] : [var.encryption_key]
    content {
      kms_key_name = encryption_spec.value
    }
  }

  depends_on = [google_project_service.this]
}
