"""Runs, wherever they run: on Vertex AI, or on this machine by the emulator's engine.

A run is a PipelineJob with its CustomJobs. `run` reads both in the REST API's JSON, and all else
works on that: what is listed, shown, compared and summarized.
"""
