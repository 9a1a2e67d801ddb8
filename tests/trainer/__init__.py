"""Tests of training, evaluation and `fit`, with real replicas."""
