"""Runs, schedules, uploads and tidies up on Vertex AI, through Google's own client libraries.

Google's SDK takes seconds to import: modules here import it inside the functions that use it.
"""
