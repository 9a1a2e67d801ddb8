"""Vertex AI's machines: types, accelerators, quotas and prices.

    from vertex.machines import machine_types

    machine_types.check_machine("machine_type", "n1-standard-32", "NVIDIA_TESLA_T4", 1)
    # InputError: machine_type='n1-standard-32' can't have 1 x NVIDIA_TESLA_T4; set
    # accelerator_count to 2 or 4

A machine type is an entry of machine_types.toml; prices.toml has the rates of its price.
"""
