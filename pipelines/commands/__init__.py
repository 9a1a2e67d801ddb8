"""The commands of `python -m pipelines`, which `command_line` puts together."""
