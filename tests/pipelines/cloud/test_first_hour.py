"""The rows of docs/first-hour.md name commands that exist, and end the process that they mean."""

import re
import shlex
import subprocess

import pytest
import typer

from pipelines.commands.command_line import app
from tests.child_processes import ROOT

PAGE = (ROOT / "docs" / "first-hour.md").read_text()
COMMANDS = typer.main.get_command(app).commands
LINES = [
    line
    for line in re.findall(r"`(?:python -m pipelines )?([^`]+)`", PAGE)
    if line.split()[0] in COMMANDS and " " in line
]


@pytest.mark.parametrize("line", LINES)
def test_command_of_the_page_exists(line):
    name, *arguments = shlex.split(line)
    command = COMMANDS[name]
    while subcommands := getattr(command, "commands", None):
        command = subcommands[arguments.pop(0)]
    assert command.make_context(name, arguments)


def test_row_of_restart_ends_the_trainer_whatever_process_starts_it(tmp_path):
    script = re.search("process 1: `(.*?)`", PAGE)[1].replace("/proc", str(tmp_path))
    command = ["python3", "-m", "trainer.task", "--dataset=x"]
    for number, arguments in {1: ["/bin/sh", "-c", " ".join(command)], 23: command}.items():
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "cmdline").write_text("\0".join([*arguments, ""]))
    shell = ["bash", "-c", f'kill() {{ echo "$@"; }}; {script}']
    assert subprocess.run(shell, capture_output=True, text=True).stdout == "-TERM 23\n"
