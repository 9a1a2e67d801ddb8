"""A SavedModel behind HTTP, as Vertex AI asks of a container that serves predictions."""

PORT, HEALTH_ROUTE, PREDICT_ROUTE = 8080, "/health", "/predict"
"""Of the serving image, unless Vertex AI's variables name others."""
VERSION_VARIABLE = "MODEL_VERSION"
"""Environment variable of what each answer names as the model's version."""
