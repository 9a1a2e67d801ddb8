"""What all tests of the command line use."""

import pytest

from pipelines.commands import command_line


@pytest.fixture
def command(capfd):
    """Runs a command line in this process: exit code, output, errors."""

    def run(*arguments):
        code = command_line.run(command_line.app, list(arguments))
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return run
