"""Tests of the models and their backbones."""
