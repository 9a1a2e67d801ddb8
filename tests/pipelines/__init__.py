"""Tests of the pipelines, their recipes and the command line."""
