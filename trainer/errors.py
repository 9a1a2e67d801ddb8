"""The one error that a user's mistake becomes."""


class InputError(Exception):
    """Something that came from the user can't be used.

    Its message is one line that names the value, the place it came from and the
    remedy. Command lines print it without a stack trace and exit with 2.
    """


EXIT_CODE = 2
"""Exit code of a process that ends on an `InputError` (the shell's usage error)."""
