"""Tests of the emulator of Vertex AI by Google's clients."""
