"""Bundles of `first-hour` replay: of the emulator, of another server, or of FIRST_HOUR_BUNDLE."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from google.cloud.aiplatform_v1 import types
from google.longrunning import operations_pb2
from google.protobuf import json_format, struct_pb2

from pipelines.runs import experiments
from tests.pipelines.cloud.cloud_servers import as_google
from tests.pipelines.emulator import bundle_replay
from vertex_emulator.http_rules import load_methods

METHODS = list(load_methods())


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(path, id=name, marks=[pytest.mark.slow] * (name == "independent"))
        for path, name in zip(bundle_replay.PATHS, bundle_replay.NAMES, strict=True)
    ],
)
def bundle(request):
    return bundle_replay.read(request.param)


def commands(bundle):
    return [command for row in bundle["rows"] for command in row["commands"]]


@pytest.fixture
def replay(bundle, elsewhere, tmp_path, monkeypatch):
    """A server of the bundle's answers, to which the settings in the working folder lead."""
    monkeypatch.setattr(experiments, "_POLLING_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("VERTEX_AI_TRANSPORT", "rest")
    with contextlib.ExitStack() as stack:
        replay = stack.enter_context(bundle_replay.Replay(bundle))
        if not replay.settings.get("endpoint"):
            google = stack.enter_context(as_google(replay.server_port, tmp_path))
            for name, value in google.items():
                monkeypatch.setenv(name, value)
        lines = [f"{name} = {json.dumps(value)}" for name, value in replay.settings.items()]
        labels = replay.settings.get("labels", {})
        table = ", ".join(f"{json.dumps(key)} = {json.dumps(labels[key])}" for key in labels)
        lines = [line for line in lines if not line.startswith("labels")]
        Path("vertex.toml").write_text("\n".join([*lines, f"labels = {{{table}}}"]))
        yield replay


def test_our_requests_and_outcomes_are_those_of_the_bundle(bundle, replay, command):
    """Type the commands again; see bundle_replay.identify for what is not compared."""
    for recorded in commands(bundle):
        with replay.expecting(recorded["exchanges"]):
            typed = replay.fill(recorded["typed"])
            code, output, errors = command(typed.removeprefix("python -m pipelines "))
        assert replay.problems == [], typed
        assert code == recorded["exit"], (typed, errors)
        shown = re.search(recorded["shows"], f"{output}\n{errors}", re.MULTILINE)
        assert (bool(shown) and code == 0) == recorded["as expected"], (typed, output)
        assert refusals(errors.splitlines()) == refusals(replay.fill(recorded["output"]))


def refusals(lines):
    """Return what was refused, without the server's words, which may be in the bundle cut."""
    return [line.split(": ")[:2] for line in lines if line.startswith("error: ")]


def test_answers_are_messages_of_the_official_protos(bundle, replay):
    for command in commands(bundle):
        for exchange in command["exchanges"]:
            verb, _, path = exchange["call"].partition(" ")
            names = [method.name for method in METHODS if method.parse(verb, path, b"")]
            if names and exchange["status"] == 200:
                answer = replay.fill(exchange.get("answer") or {})
                json_format.ParseDict(answer, response(names[0]), ignore_unknown_fields=True)


def response(method):
    """Return an empty message of the type that a method returns."""
    verb, kind = re.fullmatch(r"(Get|Create|Update|List)?(\w+)", method).groups()
    name = f"List{kind}Response" if verb == "List" else kind
    if verb and hasattr(types, name):
        return getattr(types, name)()._pb
    is_operation = verb == "Delete" or method in ("GetOperation", "DeleteModelVersion")
    return operations_pb2.Operation() if is_operation else struct_pb2.Struct()


def test_changed_request_does_not_replay(bundle, replay, command):
    for recorded in commands(bundle):
        first, *others = recorded["exchanges"] or [{}]
        if "displayName" in (first.get("body") or {}):
            changed = {**first, "body": {**first["body"], "displayName": "another"}}
            with replay.expecting([changed, *others]):
                command(replay.fill(recorded["typed"]).removeprefix("python -m pipelines "))
            assert any(problem.startswith('unknown: ["POST ') for problem in replay.problems)
            assert any(problem.startswith("not sent: ") for problem in replay.problems)
            return
    pytest.skip("no run was started")
