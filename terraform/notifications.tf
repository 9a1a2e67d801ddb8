# Sends everything that Vertex AI logs about runs to a Pub/Sub topic, for programs that act on it.
# https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/pipelines/route-pubsub
resource "google_pubsub_topic" "runs" {
  #checkov:skip=CKV_GCP_83:its messages are log entries, which var.encryption_key does not encrypt either
  name       = "training-runs"
  depends_on = [google_project_service.this]
}

resource "google_logging_project_sink" "runs" {
  name                   = "training-runs"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.runs.id}"
  filter                 = "resource.type=\"aiplatform.googleapis.com/PipelineJob\""
  unique_writer_identity = true
}

resource "google_pubsub_topic_iam_member" "sink" {
  topic  = google_pubsub_topic.runs.name
  role   = "roles/pubsub.publisher"
  member = google_logging_project_sink.runs.writer_identity
}
