# The Google Cloud resources that releases need. Its authors have never applied it: read the plan
# before you do. docs/delivery.md has the steps: the provider calls Cloud Resource Manager and
# Service Usage of the project before it can enable them.

terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.0"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
  # Budgets belong to a billing account; their API needs a project to charge calls to.
  billing_project       = var.project
  user_project_override = true

  default_labels = {
    application = "vertex-tensorflow-training"
  }
}

data "google_project" "this" {
  project_id = var.project
}

resource "google_project_service" "this" {
  for_each = toset([
    "aiplatform.googleapis.com",
    "artifactregistry.googleapis.com",
    "billingbudgets.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "storage.googleapis.com",
    "sts.googleapis.com",
  ])

  service = each.value
  # Other resources of the project may use it, too.
  disable_on_destroy = false
}
