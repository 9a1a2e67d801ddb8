"""Operations on a Google Cloud project: schedules, templates, monitoring, checks and cleaning.

Functions raise CloudError if Google Cloud refuses a request or does not answer, and InputError for
a user's mistake. Google's SDK takes seconds to import, so modules of this package import it inside
the functions that use it.
"""
