# GitHub's tokens impersonate the releaser's account; no service account key exists.
resource "google_iam_workload_identity_pool" "github" {
  workload_identity_pool_id = "github"
  display_name              = "GitHub Actions"
  depends_on                = [google_project_service.this]
}

resource "google_iam_workload_identity_pool_provider" "github" {
  #checkov:skip=CKV_GCP_125:requires assertion.sub, whose form depends on the repository's age
  workload_identity_pool_id          = google_iam_workload_identity_pool.github.workload_identity_pool_id
  workload_identity_pool_provider_id = "release"
  display_name                       = "Releases"

  attribute_mapping = {
    "google.subject" = "'repository:' + assertion.repository_id + ':environment:' + assertion.environment"
  }

  # Requires the repository by its number, which nobody can take over with its name, its protected
  # environment "release", and a tag. GitHub's own subject is not used: since July 2026 it also
  # contains numbers in new and renamed repositories.
  attribute_condition = "assertion.repository_id == '${var.github_repository_id}' && assertion.environment == 'release' && assertion.ref.startsWith('refs/tags/v')"

  oidc {
    issuer_uri = "https://token.actions.githubusercontent.com"
  }
}

resource "google_service_account_iam_member" "github_as_releaser" {
  service_account_id = google_service_account.releaser.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principal://iam.googleapis.com/${google_iam_workload_identity_pool.github.name}/subject/repository:${var.github_repository_id}:environment:release"
}
