"""Machines of training jobs: their prices, their quota, and how Vertex AI provides them.

The machine types themselves lie in trainer/machine_types.toml, for plan_training checks them in
the container, too.
"""
