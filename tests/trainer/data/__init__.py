"""Tests of sources, and of writing and reading records."""
