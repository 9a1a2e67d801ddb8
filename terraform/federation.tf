# GitHub's own tokens open the releaser's account, and no key exists that could.
resource "google_iam_workload_identity_pool" "github" {
  workload_identity_pool_id = "github"
  display_name              = "GitHub Actions"
  depends_on                = [google_project_service.this]
}

resource "google_iam_workload_identity_pool_provider" "github" {
  workload_identity_pool_id          = google_iam_workload_identity_pool.github.workload_identity_pool_id
  workload_identity_pool_provider_id = "release"
  display_name                       = "Releases"

  attribute_mapping = {
    "google.subject" = "assertion.sub"
  }

  # This repository's environment "release", which GitHub guards, for a tag; and the
  # repository's number, which nobody can take over together with its name.
  attribute_condition = "assertion.sub == 'repo:${var.github_owner}/${var.github_repository}:environment:release' && assertion.repository_id == '${var.github_repository_id}' && assertion.ref.startsWith('refs/tags/v')"

  oidc {
    issuer_uri = "https://token.actions.githubusercontent.com"
  }
}

resource "google_service_account_iam_member" "github_as_releaser" {
  service_account_id = google_service_account.releaser.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principal://iam.googleapis.com/${google_iam_workload_identity_pool.github.name}/subject/repo:${var.github_owner}/${var.github_repository}:environment:release"
}
