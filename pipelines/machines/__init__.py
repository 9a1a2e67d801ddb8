"""Prices and quota of the machines of training jobs.

The machine types are in trainer/machines/machine_types.toml, because plan_training checks them in
the container, too.
"""
