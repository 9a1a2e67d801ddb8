"""Execution on this machine of a compiled pipeline, the same YAML that Vertex AI runs."""
