"""Runs on this machine: they execute the same compiled YAML as Vertex AI."""
