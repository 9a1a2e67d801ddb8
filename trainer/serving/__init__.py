"""Serve a SavedModel over HTTP, as Vertex AI requires of prediction containers."""

PORT, HEALTH_ROUTE, PREDICT_ROUTE = 8080, "/health", "/predict"
"""Defaults of the serving image; Vertex AI's environment variables override them."""
MAX_INSTANCES = 1024
"""Largest number of instances per request; all are answered together."""
VERSION_VARIABLE = "MODEL_VERSION"
"""Environment variable with the model version that each answer contains."""
DIGEST_VARIABLE = "MODEL_DIGEST"
"""Environment variable with the digest of the model's files: `model_files.identify`."""
LOG_VARIABLE = "REQUEST_LOG"
"""Environment variable with the path of the request log; unset: nothing is logged."""
