"""first-hour types its rows, asks, compares, and writes a bundle, from which it continues."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cloud import first_hour
from pipelines.cloud.first_hour import Row, Step, load_rows
from tests.child_processes import ROOT
from tests.pipelines.cloud.cloud_servers import as_google
from tests.pipelines.cloud.independent_server import NUMBER, IndependentServer
from tests.pipelines.cloud.scripted_vertex import Outcome
from tests.pipelines.cloud.test_runs import NOISE, log_entry
from tests.pipelines.emulator import bundle_replay

PAGE = ROOT / "docs" / "first-hour.md"
LISTED = Step("schedule list", "^ Recipe +State")


def rows(*rows):
    return tuple(Row(minute=number, shows="it", **row) for number, row in enumerate(rows))


@pytest.fixture
def hour(vertex, command, monkeypatch):
    """Run the command with other rows, and answers to its questions; return code and output."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(first_hour, "_LOCAL_PAUSE_SECONDS", 0.1)

    class Answers(io.StringIO):
        def isatty(self):
            return True

    def run(*given, answers=None):
        monkeypatch.setattr(first_hour, "load_rows", lambda: rows(*given))
        if answers is not None:
            monkeypatch.setattr(sys, "stdin", Answers("\n".join([*answers, ""])))
        code, shown, errors = command(f"first-hour{' --yes' if answers is None else ''}")
        return code, shown + errors

    return run


def bundles():
    return [bundle_replay.read(path) for path in sorted(Path().glob("first-hour-*[0-9].json"))]


def results():
    (bundle,) = bundles()
    return {row["row"]: row["result"] for row in bundle["rows"]}


def test_page_is_what_the_command_lists(succeed):
    assert succeed("first-hour --list") in PAGE.read_text()


def test_rows_name_only_earlier_rows_and_known_commands(succeed):
    names = []
    for row in load_rows():
        assert set(row.after) <= set(names)
        assert row.name not in names
        names.append(row.name)
        for step in row.steps:
            assert f"{step.typed.split()[0]}" in succeed("--help")


def test_row_of_restart_ends_the_trainer_whatever_process_starts_it(tmp_path):
    (row,) = (row for row in load_rows() if row.name == "restart")
    script = re.search("process 1: `(.*?)`", row.do)[1].replace("/proc", str(tmp_path))
    command = ["python3", "-m", "trainer.task", "--dataset=x"]
    for number, arguments in {1: ["/bin/sh", "-c", " ".join(command)], 23: command}.items():
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "cmdline").write_text("\0".join([*arguments, ""]))
    shell = ["bash", "-c", f'kill() {{ echo "$@"; }}; {script}']
    assert subprocess.run(shell, capture_output=True, text=True).stdout == "-TERM 23\n"


@pytest.mark.slow
def test_row_of_logs_finds_a_replica_that_logs_only_noise(hour, vertex):
    (logs,) = (step for row in load_rows() for step in row.steps if "logs" in step.typed)
    for replica, text in (("workerpool0-0", "epoch 1/12"), ("workerpool1-0", NOISE)):
        vertex.log_entries.append(log_entry(replica, textPayload=text))
    run = Step("run {recipe} --detach --name first{hour}", "^status")
    code, shown = hour({"name": "logs", "steps": [run, logs]})
    assert (code, results()) == (0, {"logs": "as expected"}), shown
    output = bundles()[0]["rows"][0]["commands"][-1]["output"]
    assert re.search(logs.shows, "\n".join(reversed(output)), re.MULTILINE)


def test_it_asks_before_anything_is_sent(vertex, refused, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "add --yes" in refused("first-hour")
    assert "no recipe 'digit'" in refused("first-hour digit --yes")
    monkeypatch.delenv("VERTEX_PIPELINE_ROOT")
    assert "no pipeline_root" in refused("first-hour --yes")
    assert vertex.requests == []
    assert bundles() == []


@pytest.mark.slow
def test_failing_row_skips_only_the_rows_that_need_it(hour, vertex):
    vertex.fail("ListSchedules", 403, "PERMISSION_DENIED", f"no list of projects/{NUMBER}")
    code, shown = hour(
        {"name": "lists", "steps": [LISTED, LISTED], "remedy": "wait"},
        {"name": "later", "steps": [LISTED], "after": ["lists"]},
        {"name": "looks", "do": "the console"},
        {"name": "other", "steps": [LISTED]},
    )
    assert code == 1
    lists, later, looks, other = bundles()[0]["rows"]
    assert [row["result"] for row in (lists, later, looks, other)] == [
        *("other", "skipped", "skipped", "as expected")
    ]
    assert later["why"] == "needs the row lists"
    assert looks["why"] == "only a person can do it"
    assert "other: wait" in shown
    (command,) = lists["commands"]
    assert command["exit"] == 1
    assert command["exchanges"][-1]["status"] == 403
    assert NUMBER not in json.dumps(lists)
    assert "1 as expected, 1 other, 2 skipped" in shown
    assert "found     error: listing the schedules: 403 no list of projects/123456" not in shown


@pytest.mark.slow
def test_it_does_what_is_answered(hour, vertex):
    given = (
        {"name": "costs", "steps": [LISTED], "asks": "costs"},
        {"name": "deletes", "steps": [LISTED], "asks": "the schedule of {recipe}"},
        {"name": "free", "steps": [LISTED]},
        {"name": "sees", "do": "the console"},
        {"name": "last", "steps": [LISTED], "asks": "costs", "run_minutes": 60},
    )
    code, shown = hour(
        *given, answers=["y", "skip", "other", f"an error in projects/{NUMBER}", "n"]
    )
    assert code == 130
    assert "shows     it\ncosts     about 0.11 USD, and the pipeline's other steps\n" in shown
    assert "deletes   the schedule of digits\n" in shown
    assert "costs     about 0.52 USD" in shown
    assert results() == {
        "costs": "as expected",
        "deletes": "skipped",
        "free": "as expected",
        "sees": "other",
    }
    assert bundles()[0]["rows"][-1]["why"] == "an error in projects/<NUMBER-1>"
    count = len(vertex.requests)
    assert count == 2
    # The same command continues.
    code, shown = hour(*given, answers=["y"])
    assert "deletes: skipped, earlier" in shown
    assert results()["last"] == "as expected"
    assert len(vertex.requests) == count + 1
    # The next hour has a bundle of its own.
    hour(*given, answers=["n"])
    assert len(vertex.requests) == count + 1


@pytest.mark.slow
def test_killed_hour_continues_after_its_last_row(hour, vertex, monkeypatch):
    given = ({"name": "first", "steps": [LISTED]}, {"name": "second", "steps": [LISTED]})
    run = subprocess.run
    typed = []

    def interrupted(command, **options):
        typed.extend(command[-1:] if "pipelines" in command else [])
        if len(typed) == 2:
            raise KeyboardInterrupt
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", interrupted)
    assert hour(*given)[0] == 130
    assert results() == {"first": "as expected"}
    (names,) = Path().glob("*.names.json")
    assert (names.stat().st_mode & 0o777, json.loads(names.read_text())["my-project"]) == (
        *(0o600, "<PROJECT-1>"),
    )
    # A bundle of somebody else, and a damaged one, are left alone.
    Path("first-hour-20990101-000000.json").write_text("{}")
    Path("first-hour-20990101-000001.names.json").write_text('{"my-')
    code, shown = hour(*given)
    assert code == 0
    assert "continues first-hour-2" in shown and "move that file" in shown
    assert len(typed) == 3
    Path("first-hour-20990101-000000.json").unlink()
    assert results() == {"first": "as expected", "second": "as expected"}


@pytest.mark.slow
def test_equal_polls_are_kept_once(hour, vertex):
    vertex.outcomes = [Outcome(polls=3)]
    started = Step("run digits --detach --name one", "^status")
    waits = Step("status one", "^one  SUCCEEDED$", "it has ended")
    code, shown = hour({"name": "waits", "steps": [started, waits]})
    assert code == 0
    assert "waiting   until it has ended" in shown
    (row,) = bundles()[0]["rows"]
    _, running, ended = row["commands"]
    assert running["times"] > 1
    assert (running["as expected"], ended["as expected"]) == (False, True)
    states = [state["state"].rpartition("_")[2] for state in row["states"]]
    assert states == ["PENDING", "RUNNING", "SUCCEEDED", "SUCCEEDED"]
    assert all("createTime" in exchange["answer"] for exchange in ended["exchanges"])


SECRETS = (NUMBER, "acme", "jane", "ya29", "secret words", "of-the-token-server")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["local", "google"])
def test_bundle_of_an_independent_server_has_no_names_and_replays(tmp_path, place):
    variables = {
        "GOOGLE_CLOUD_PROJECT": "acme-prod-9",
        "VERTEX_PIPELINE_ROOT": "gs://acme-prod-9x/runs",
        "VERTEX_IMAGE": f"us-central1-docker.pkg.dev/acme-images/x/it@sha256:{64 * '1'}",
        "VERTEX_SERVING_IMAGE": f"us-central1-docker.pkg.dev/acme-images/x/it@sha256:{64 * '2'}",
        "VERTEX_SERVICE_ACCOUNT": "jane-runs@acme-prod-9.iam.gserviceaccount.com",
        "VERTEX_ENCRYPTION_KEY": "projects/acme-keys/locations/us-central1/keyRings/acme-ring/"
        "cryptoKeys/acme-key",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }
    (tmp_path / "proxy").mkdir()
    with IndependentServer() as server, as_google(server.server_port, tmp_path / "proxy") as google:
        if place == "local":
            google = {"VERTEX_AI_ENDPOINT": server.url, "VERTEX_AI_ACCESS_TOKEN": "ya29.of-acme"}
        subprocess.run(
            [sys.executable, "-m", "pipelines", "first-hour", "--yes"],
            env={**os.environ, **variables, **google},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )
    (path,) = tmp_path.glob("first-hour-*[0-9].json")
    text = path.read_text()
    assert [secret for secret in SECRETS if secret in text.lower()] == []
    done = {row["row"]: row["result"] for row in json.loads(text)["rows"]}
    expected = {"first", "source", "schedule", "states", "training", "logs", "gone", "cancel"}
    assert expected <= {row for row in done if done[row] == "as expected"}
    bundle_replay.check_in_process(path)
