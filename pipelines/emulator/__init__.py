"""A Vertex AI of this machine: custom jobs and a Model Registry."""
