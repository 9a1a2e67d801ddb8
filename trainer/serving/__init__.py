"""A SavedModel behind HTTP, as Vertex AI asks of a container that serves predictions."""

PORT, HEALTH_ROUTE, PREDICT_ROUTE = 8080, "/health", "/predict"
"""Of the serving image, unless Vertex AI's variables name others."""
MAX_INSTANCES = 1024
"""Instances a request; they wait for each other's answers."""
VERSION_VARIABLE = "MODEL_VERSION"
"""Environment variable of what each answer names as the model's version."""
LOG_VARIABLE = "REQUEST_LOG"
"""Environment variable that names a file for what is asked; without it nothing is logged."""
