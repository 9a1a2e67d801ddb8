"""The emulator accepts the requests of a bundle, and its resources have the same states."""

import json
import re

import pytest

from pipelines.cloud.first_hour import list_states
from pipelines.package import Package
from tests.pipelines.emulator.bundle_replay import FOLDER, NAMES, PATHS, Replay, read
from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.local.conftest import wait_for
from tests.pipelines.local.package_runs import compile_to
from tests.pipelines.local.small_pipeline import small

WAITING = ("QUEUED", "PENDING", "CANCELLING")
"""States that pass by themselves, and that the emulator may not have, or only for a moment."""
RESOURCE = re.compile(r"(?:pipelineJobs|schedules|customJobs)/[\w-]+")
CALL = re.compile(
    r"(POST|PATCH|DELETE) (/v1/projects/[^/]+/locations/[^/]+/(?:pipelineJobs|schedules).*)"
)
TRAINING_SECONDS, ENDLESS_SECONDS = 2, 600


class Feed:
    """The recorded requests that create or change a resource, sent to the emulator."""

    def __init__(self, rehearsal, replay, bundle, pipeline):
        self._rehearsal, self._replay, self._pipeline = rehearsal, replay, pipeline
        self._exchanges = [
            replay.fill(exchange)
            for row in bundle["rows"]
            for command in row["commands"]
            for exchange in command["exchanges"]
        ]
        self._last = {}  # last state of each resource in the bundle, in all of it and until now
        for name, state in self._states(self._exchanges):
            self._last[name] = state
        self._names = {}  # names in the emulator, by the last parts of recorded names
        self._now = {}

    def run(self):
        """Send each request; after each exchange, wait for the states that its answer shows."""
        for exchange in self._exchanges:
            match = CALL.fullmatch(exchange["call"])
            if match and exchange["status"] == 200:
                self._send(exchange, *match.groups())
            self._find_jobs(exchange)
            for name, state in self._states([exchange]):
                if name in self._names and self._now.get(name) != state:
                    self._now[name] = state
                    if state not in WAITING:
                        wait_for(lambda n=name, s=state: self._state(n) == s, 60)
        return self._now

    @staticmethod
    def _states(exchanges):
        for state in list_states([{"exchanges": exchanges}]):
            if name := RESOURCE.search(state["name"]):
                yield name[0], str(state["state"]).rpartition("STATE_")[2]

    def _state(self, name):
        status, answer = self._rehearsal.send("GET", f"/v1/{self._names[name]}")
        return answer["state"].rpartition("STATE_")[2] if status == 200 else str(status)

    def _send(self, exchange, verb, path):
        body = self._with_pipeline(exchange.get("body"), exchange.get("query", {}))
        known = RESOURCE.search(path)
        if known and known[0] not in self._names:
            return
        if known:
            collection = path[: known.start()]
            path = path.replace(collection + known[0], f"/v1/{self._names[known[0]]}")
        query = "&".join(f"{key}={value}" for key, value in exchange.get("query", {}).items())
        status, answer = self._rehearsal.send(verb, f"{path}?{query}", body)
        assert status == 200, (exchange["call"], answer)
        if verb == "POST" and not known:
            recorded = exchange["answer"]
            self._names[RESOURCE.search(recorded["name"])[0]] = answer["name"]
            # What the server returns as it was sent, the emulator returns, too.
            for field in (exchange["body"].keys() & recorded.keys()) - {"pipelineSpec"}:
                if exchange["body"][field] == recorded[field] and field in body:
                    assert answer.get(field) == body[field], field

    def _with_pipeline(self, body, query):
        """Return a request whose pipeline takes seconds, or until it is cancelled."""
        run = f"pipelineJobs/{query.get('pipelineJobId')}"
        ends = self._last.get(run, "") in ("SUCCEEDED", "FAILED")
        seconds, code = (
            TRAINING_SECONDS if ends else ENDLESS_SECONDS,
            self._last.get(run) == "FAILED",
        )
        replica = ["-c", f"import sys, time; time.sleep({seconds}); sys.exit({int(code)})"]

        def replace(part):
            if "pipelineSpec" in part:
                part["pipelineSpec"] = self._pipeline
                part["runtimeConfig"]["parameterValues"] = {"replica": replica}
            return part

        return json.loads(json.dumps(body), object_hook=replace)

    def _find_jobs(self, exchange):
        """Learn which of the emulator's training jobs a recorded one is, by their run."""
        text = json.dumps(exchange.get("answer"))
        run = re.search(r'"name": "[^"]+/(pipelineJobs/[\w-]+)"', text)
        for job in re.findall(r"customJobs/\d+", text):
            if run and run[1] in self._names and job not in self._names:
                self._names[job] = wait_for(lambda r=run[1]: self._find_job(r), 60)[0]

    def _find_job(self, run):
        _, answer = self._rehearsal.send("GET", f"/v1/{self._names[run]}")
        return re.search(r"projects/[^/]+/locations/[^/]+/customJobs/\d+", json.dumps(answer))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        # The emulator's own states, of the requests that the other bundle has, too.
        pytest.param(path, id=name, marks=[pytest.mark.slow] if name == "emulator" else ())
        for path, name in zip(PATHS, NAMES, strict=True)
    ],
)
def test_emulator_has_the_recorded_states(path, tmp_path):
    bundle, pipeline = read(path), Package(compile_to(tmp_path, small)).content
    with emulated(tmp_path) as rehearsal, Replay(bundle) as replay:
        seen = Feed(rehearsal, replay, bundle, pipeline).run()
    if path.parent == FOLDER:
        assert {"SUCCEEDED", "CANCELLED"} <= set(seen.values())
