"""Prices and quota of the machines of training jobs."""
