"""A bundle of `first-hour`, and a server that answers the same requests as its server did."""

import collections
import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from components.vertex.recording import _parse
from pipelines.cloud.first_hour import TIME
from pipelines.cloud.scrubbing import PLACEHOLDER
from tests.child_processes import ROOT
from tests.json_server import JsonServer

FOLDER = Path(__file__).parent / "bundles"
PATHS = [*sorted(FOLDER.iterdir()), *map(Path, filter(None, [os.getenv("FIRST_HOUR_BUNDLE")]))]
"""Bundles that the tests replay: those of this repository, and one of your own."""
NAMES = [path.name.partition(".")[0] for path in PATHS]
STAND_INS = {
    "PROJECT": "replayed-project-{}",
    "NUMBER": "90000000000{}",
    "ADDRESS": "192.0.2.{}",
    "DOMAIN": "replayed-{}.example",
    "HOST": "replayed-{}.example",
}
"""Names in place of placeholders, by kind; of another kind: replayed-KIND-1."""
HEX = re.compile(r"(?=\d*[a-f])[0-9a-f]{12,}")
"""Digests of pipelines, commits and IDs of requests, which differ from run to run."""
LOCK = re.compile(r"(promoting-\d+)(-[0-9a-f]+)?")
"""The alias of a promotion that is under way, to which newer versions add a token."""
LENGTH = re.compile(r"^\d+ bytes of ")
PIPELINE = re.compile(r"<PIPELINE-\d+>")


def read(path):
    """Return the bundle in a file, which may be compressed."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def identify(call, query, body):
    """Return what must be equal in a recorded request and in ours.

    Not compared: times, digests, commits and IDs of requests; the content of compiled pipelines;
    the length of uploads.
    """

    def shorten(part):
        return {key: part[key] if key != "pipelineSpec" else "" for key in part}

    body = LENGTH.sub("", body) if isinstance(body, str) else body or None
    text = json.dumps([call, query or None, body], sort_keys=True)
    text = json.dumps(json.loads(text, object_hook=shorten), sort_keys=True)
    text = LOCK.sub(r"\1", text)
    return HEX.sub("<HEX>", TIME.sub("", text))


class Replay(JsonServer):
    """A server of a bundle's answers on a port of 127.0.0.1; a context manager.

    Attributes:
        problems: requests that the bundle does not have, or that were not sent.
        settings: of the bundle's project, with names that lead to this server.
    """

    def __init__(self, bundle):
        super().__init__(self._reply)
        self.url = f"127.0.0.1:{self.server_address[1]}"
        self.problems, self._known, self._locks = [], {}, {}
        self._pipelines = dict(bundle["pipelines"])
        settings = bundle["about"]["settings"]
        self._hosts = [settings.get(name, "") for name in ("endpoint", "template_repository")]
        self._queues, self._lock = {}, threading.Lock()
        self.settings = self.fill(bundle["about"]["settings"])

    def fill(self, value):
        """Return JSON of the bundle with names in place of the placeholders."""

        def name(match):
            kind, number = match[0][1:-1].split("-")
            if any(match[0] in url for url in self._hosts) and kind == "HOST":
                return self.url
            return STAND_INS.get(kind, f"replayed-{kind.lower()}-{{}}").format(number)

        def complete(part):
            if spec := self._pipelines.get(part.get("pipelineSpec")):
                part["pipelineSpec"] = spec
            return part

        value = json.loads(json.dumps(value), object_hook=complete)
        text = PLACEHOLDER.sub(name, json.dumps(value))
        text = LOCK.sub(lambda match: self._locks.get(match[1], match[0]), text)
        return json.loads(HEX.sub(lambda match: self._known.get(match[0], match[0]), text))

    @contextlib.contextmanager
    def expecting(self, exchanges):
        """Answer these requests, and no others; each of them must be sent."""
        queues = self._queues = collections.defaultdict(collections.deque)
        for exchange in exchanges:
            request = [self.fill(exchange.get(name)) for name in ("call", "query", "body")]
            queues[identify(*request)].append([False, exchange])
        yield
        for key, queue in queues.items():
            for served, exchange in queue:
                if not served and not is_optional(exchange["call"]):
                    self.problems.append(f"not sent: {key}")

    def answer(self, call, query, body):
        """Return the recorded status and answer; the last one again, if it was the last."""
        with self._lock:
            queue = self._queues.get(identify(call, query, body))
            if not queue:
                if not is_optional(call):
                    self.problems.append(f"unknown: {identify(call, query, body)}")
                status = 404 if call == "GET /clock" else 501
                return status, {"error": {"code": status, "message": "not in the bundle"}}
            pair = next((pair for pair in queue if not pair[0]), queue[-1])
            pair[0], exchange = True, pair[1]
            self._locks.update((match[1], match[0]) for match in LOCK.finditer(json.dumps(body)))
            self._learn([exchange["call"], exchange.get("body")], [call, body])
            return exchange["status"], self.fill(exchange.get("answer"))

    def _learn(self, recorded, sent):
        """Learn the digests and pipelines of ours that correspond to recorded ones."""
        if isinstance(recorded, dict) and isinstance(sent, dict):
            for key in recorded.keys() & sent.keys():
                if key == "pipelineSpec":
                    self._pipelines[recorded[key]] = sent[key]
                else:
                    self._learn(recorded[key], sent[key])
        elif isinstance(recorded, list) and isinstance(sent, list):
            for pair in zip(recorded, sent, strict=True):
                self._learn(*pair)
        elif isinstance(recorded, str) and isinstance(sent, str):
            self._known.update(zip(HEX.findall(recorded), HEX.findall(sent), strict=False))

    def _reply(self, verb, path, headers, body):
        parts = urlsplit(path)
        if parts.path == "/token":
            return 200, {"access_token": "replayed", "expires_in": 3600}
        query = {key: value for key, value in parse_qsl(parts.query) if key[0] != "$"}
        status, answer = self.answer(f"{verb} {unquote(parts.path)}", query, _parse(body, headers))
        return status, answer or {}


def is_optional(call):
    """Return True for a request that is not sent in each replay of a bundle.

    Google's client asks for a bucket in a thread, if it comes to it; only the emulator has a clock.
    """
    return call == "GET /clock" or re.fullmatch(r"GET /storage/v1/b/[^/]+", call) is not None


def check_in_process(path):
    """Run the tests of bundles on a bundle in a process of their own; they must pass."""
    chosen = ["-k", path.stem, "-m", "slow or not slow"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(Path(__file__).parent), *chosen],
        env={**os.environ, "FIRST_HOUR_BUNDLE": str(path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
