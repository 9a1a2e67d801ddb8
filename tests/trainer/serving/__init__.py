"""Tests of the prediction server with malformed, large and ordinary requests."""
