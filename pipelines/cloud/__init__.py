"""Runs, schedules, uploads and tidies up on Vertex AI, through Google's own client libraries.

Where Google refuses or does not answer, functions raise CloudError, or InputError for what the
user has asked for. Google's SDK takes seconds to import: modules here import it inside the
functions that use it.
"""
