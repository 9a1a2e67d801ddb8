"""Facts of Vertex AI: machine types, regions, names, quotas, schedules and restart rules."""
