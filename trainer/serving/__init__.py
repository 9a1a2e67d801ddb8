"""A SavedModel behind HTTP, as Vertex AI asks of a container that serves predictions."""
