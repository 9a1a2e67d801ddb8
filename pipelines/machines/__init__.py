"""Machines of training jobs: their prices, their quota, and how Vertex AI provides them.

The machine types themselves lie in trainer/machines/machine_types.toml, because plan_training
checks them in the container, too.
"""
