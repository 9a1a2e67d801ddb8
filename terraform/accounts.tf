# The account of runs: components, replicas, scheduled runs.
resource "google_service_account" "runner" {
  account_id   = "training-runner"
  display_name = "Runs of training pipelines"
  depends_on   = [google_project_service.this]
}

# The account of releases: it pushes, uploads and schedules, but does not train.
resource "google_service_account" "releaser" {
  account_id   = "training-releaser"
  display_name = "Releases from GitHub"
  depends_on   = [google_project_service.this]
}

# Runs: submit and watch custom jobs, write metadata, register and deploy models, write TensorBoard.
resource "google_project_iam_member" "runner_vertex" {
  project = var.project
  role    = "roles/aiplatform.user"
  member  = google_service_account.runner.member
}

resource "google_project_iam_member" "runner_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.runner.member
}

# No role on the project's other buckets.
resource "google_storage_bucket_iam_member" "runner_objects" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectUser"
  member = google_service_account.runner.member
}

# Vertex AI Pipelines needs storage.buckets.get (machine-learning/pipelines/configure-project).
resource "google_storage_bucket_iam_member" "runner_bucket" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.legacyBucketReader"
  member = google_service_account.runner.member
}

# The account of a job that streams to a TensorBoard "has the Storage Admin role" and Vertex AI
# User (machine-learning/experiments/tensorboard-setup). Granted on this bucket alone.
resource "google_storage_bucket_iam_member" "runner_tensorboard" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.admin"
  member = google_service_account.runner.member
}

# Runs of an uploaded pipeline read it (machine-learning/pipelines/create-pipeline-template). Their
# images are pulled by Vertex AI's service agents (machine-learning/general/custom-service-account).
resource "google_artifact_registry_repository_iam_member" "runner_pipelines" {
  location   = google_artifact_registry_repository.pipelines.location
  repository = google_artifact_registry_repository.pipelines.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.runner.member
}

# A pipeline that acts as the runner starts a custom job that acts as the runner.
resource "google_service_account_iam_member" "runner_as_itself" {
  service_account_id = google_service_account.runner.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.runner.member
}

# Releases: push both kinds, and start schedules whose runs act as the runner.
resource "google_artifact_registry_repository_iam_member" "releaser_images" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.releaser.member
}

# "Assign any of these roles to manage templates inside a repository": repoAdmin or writer
# (machine-learning/pipelines/create-pipeline-template).
resource "google_artifact_registry_repository_iam_member" "releaser_pipelines" {
  location   = google_artifact_registry_repository.pipelines.location
  repository = google_artifact_registry_repository.pipelines.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.releaser.member
}

# Schedules alone. The page on schedules names roles/aiplatform.user, which may also train; no
# predefined role is limited to schedules (machine-learning/pipelines/schedule-pipeline-run).
resource "google_project_iam_custom_role" "scheduler" {
  role_id     = "trainingScheduler"
  title       = "Schedules of training pipelines"
  description = "Creates, updates and replaces Vertex AI schedules, and creates the runs that they start."
  permissions = [
    # "The first time you run a pipeline in a new project" (machine-learning/pipelines/configure-project).
    "aiplatform.metadataStores.create",
    "aiplatform.metadataStores.get",
    "aiplatform.pipelineJobs.create",
    "aiplatform.pipelineJobs.get",
    "aiplatform.pipelineJobs.list",
    "aiplatform.schedules.create",
    # A schedule that can't be updated is replaced.
    "aiplatform.schedules.delete",
    "aiplatform.schedules.get",
    "aiplatform.schedules.list",
    "aiplatform.schedules.update",
  ]
}

resource "google_project_iam_member" "releaser_schedules" {
  project = var.project
  role    = google_project_iam_custom_role.scheduler.name
  member  = google_service_account.releaser.member
}

resource "google_service_account_iam_member" "releaser_as_runner" {
  service_account_id = google_service_account.runner.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.releaser.member
}
