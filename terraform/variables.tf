variable "project" {
  description = "ID of the Google Cloud project."
  type        = string
}

variable "region" {
  description = "Region of Vertex AI, the bucket and the repositories; traffic between regions would cost extra."
  type        = string
  default     = "us-central1"
}

variable "github_repository_id" {
  description = "Number of the GitHub repository whose releases are trusted: gh api repos/OWNER/NAME --jq .id"
  type        = string

  validation {
    condition     = can(regex("^[0-9]+$", var.github_repository_id))
    error_message = "Give the number, not the name."
  }
}

variable "billing_account" {
  description = "Billing account of the project: XXXXXX-XXXXXX-XXXXXX."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "Give XXXXXX-XXXXXX-XXXXXX, as gcloud billing accounts list shows it."
  }
}

variable "monthly_budget" {
  description = "Budget per month in whole units of the billing account's currency; alerts are sent at 50, 90 and 100%, and when 100% is forecast."
  type        = number
  default     = 200

  validation {
    condition     = var.monthly_budget >= 1 && floor(var.monthly_budget) == var.monthly_budget
    error_message = "Give a whole number, 1 or more."
  }
}

variable "alert_emails" {
  description = "E-mail addresses that get budget alerts, in addition to the billing account's administrators."
  type        = set(string)
  default     = []

  validation {
    condition     = length(var.alert_emails) <= 5
    error_message = "Give five addresses at most; for more, use a mailing list."
  }
}

variable "run_retention_days" {
  description = "Days until the files of runs are deleted, even if the cache or the champion still needs them. 0: never; python -m pipelines clean deletes only what nothing needs."
  type        = number
  default     = 0

  validation {
    condition     = var.run_retention_days >= 0 && floor(var.run_retention_days) == var.run_retention_days
    error_message = "Give a whole number of days, or 0."
  }
}

variable "encryption_key" {
  description = "Cloud KMS key for bucket, repositories, TensorBoard and the runs of schedules: projects/../cryptoKeys/NAME, usable by their service agents (docs/delivery.md). Empty: Google's keys."
  type        = string
  default     = ""
}

variable "network" {
  description = "VPC network that scheduled runs are peered with: projects/NUMBER/global/networks/NAME. Empty: none."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^(projects/[0-9]+/global/networks/[a-z0-9-]+)?$", var.network))
    error_message = "Give projects/NUMBER/global/networks/NAME, with the project's number."
  }
}

variable "labels" {
  description = "Labels of scheduled runs and of what they create."
  type        = map(string)
  default     = {}
}
