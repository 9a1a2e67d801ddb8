# An alert is a message and stops nothing. The recipe's max_cost limits the cost of a run.
resource "google_billing_budget" "this" {
  billing_account = var.billing_account
  display_name    = "Training in ${var.project}"

  budget_filter {
    projects               = ["projects/${data.google_project.this.number}"]
    calendar_period        = "MONTH"
    credit_types_treatment = "EXCLUDE_ALL_CREDITS"
  }

  amount {
    specified_amount {
      # Without a currency_code, it is the billing account's; another one is refused.
      units = tostring(var.monthly_budget)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }

  # Without the rule, only the billing account's administrators and users get alerts. It needs a channel.
  dynamic "all_updates_rule" {
    for_each = length(var.alert_emails) == 0 ? [] : [1]
    content {
      monitoring_notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
      disable_default_iam_recipients   = false
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_monitoring_notification_channel" "email" {
  for_each = var.alert_emails

  display_name = "Training budget: ${each.value}"
  type         = "email"
  labels = {
    email_address = each.value
  }

  depends_on = [google_project_service.this]
}
