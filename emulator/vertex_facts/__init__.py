"""Facts that Google documents of Vertex AI: machines, regions, names, limits, quotas, restarts.

    from vertex_facts import machine_types

    machine_types.check_machine("machine_type", "n1-standard-32", "NVIDIA_TESLA_T4", 1)
    # UsageError: machine_type='n1-standard-32' can't have 1 x NVIDIA_TESLA_T4; set
    # accelerator_count to 2 or 4

Needs only the standard library. Each module names its pages.
"""


class UsageError(ValueError):
    """A value that Vertex AI, or its emulator, can't use.

    The message is one line that names the value, what is wrong with it and the remedy.
    """
