"""A model's versions in the Model Registry, and its endpoint."""
