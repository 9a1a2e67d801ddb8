"""Commands on Vertex AI (run, schedule, upload, clean), through Google's own client libraries.

Functions raise CloudError where Google refuses or does not answer, and InputError for a mistake
of the user's. Google's SDK takes seconds to import, so modules here import it inside the
functions that use it.
"""
