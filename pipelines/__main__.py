"""The entry point of `python -m pipelines`."""

from pipelines import startup


def main() -> None:
    """Run `python -m pipelines`, or the installed command `vertex-training`."""
    with startup.one_line_errors():
        from pipelines.commands import command_line

        command_line.main()


if __name__ == "__main__":
    main()
