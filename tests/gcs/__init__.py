"""Tests with URIs of Cloud Storage, on a server that stands in for it."""
