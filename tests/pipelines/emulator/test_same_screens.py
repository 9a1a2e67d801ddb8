"""A command prints the same of a run on this machine and of one on an emulated Vertex AI."""

import re

import pytest

OPTIONS = "--set epochs=2 --set min_accuracy=0"
PLACES = (
    "console ",
    "run ",
    "report ",
    "          https",
    "cost ",
    "          not incl",
    "replica ",
)
"""Starts of lines about what only one of the two places has."""
TENSORFLOWS = re.compile(r"[EIW]\d{4} .*\.cc:\d+\]|WARNING: All log messages|To enable the follow")
"""TensorFlow's own lines: threads write them at any time, and forked processes not its first."""


def lines(text):
    """Return what is the same wherever a run is: the lines without places, names and figures."""
    kept = [line for line in text.splitlines() if not line.startswith(PLACES)]
    kept = [line for line in kept if not TENSORFLOWS.match(line)]
    text = re.sub(r"'?\b(here|there)\b'?|/\S+", "RUN", "\n".join(kept))
    return re.sub(r" *\d[\d:,.]*( s)?", " 0", text).splitlines()  # Figures may be padded.


@pytest.mark.slow
def test_same_command_prints_the_same_lines_in_both_places(rehearsal):
    def run(command):
        return rehearsal.run(f"python -m pipelines {command} 2>&1 || echo exit code $?")

    run(f"run digits --local --name here {OPTIONS}")
    run(f"run digits --name there {OPTIONS}")
    for command, count in (
        ("status {}", 99),
        ("logs {} --replica chief-0", 3),
        ("logs {} --replica workerpool1-0", 3),
        ("cancel {}", 99),
        ("logs {} --replica chief-7", 99),
    ):
        here, there = (lines(run(command.format(name)))[-count:] for name in ("here", "there"))
        assert here == there, command
    resumed = [lines(run(f"run digits {name} --resume")) for name in ("here --local", "there")]
    assert resumed[0] == resumed[1]
    listed = run("runs").splitlines()
    there, here = (line for line in listed if line.startswith(("here", "there")))
    assert lines(here.replace("here ", "there")) == lines(there)
    # Each is compared with the champion of its place.
    names = ("here-again --local", "there-again")
    again = [run(f"run digits --name {name} {OPTIONS} --set seed=2") for name in names]
    verdicts = [re.findall("^(?:verdict|registry) .*", shown, re.MULTILINE) for shown in again]
    assert verdicts[0] == verdicts[1]
    assert "digits@1" in verdicts[0][0]
