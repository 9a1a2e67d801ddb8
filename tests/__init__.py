"""Tests of the project by its commands and public functions, with real files and processes."""
