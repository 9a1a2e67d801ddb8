"""Type the rows of docs/first-hour.md, and write what Google Cloud answers into a bundle.

A bundle is one JSON file, first-hour-<time>.json, rewritten after each row: every command with its
output, and each request with its answer, without names that identify the project (`scrubbing`).
first-hour-<time>.names.json beside it has these names, and stays on this machine.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from components.vertex.recording import VARIABLE
from components.vertex.vertex_client import is_loopback
from pipelines.cloud.scrubbing import Scrubber
from pipelines.printing import say
from pipelines.project.settings import Settings
from pipelines.version import git_commit, project_version
from trainer.data import storage
from trainer.errors import InputError
from trainer.toml_reader import tomllib
from vertex_facts.emulation import TOKEN_VARIABLE

COMMAND = "python -m pipelines"
EXPECTED, OTHER, SKIPPED = "as expected", "other", "skipped"
LINE = "<LINE>"
"""Replaces the text of a line of a log."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)")
_ENDED = re.compile(r"\A\S+  (SUCCEEDED|FAILED|CANCELLED)$", re.MULTILINE)
_PATIENCE_SECONDS, _PATIENCE_AFTER_END_SECONDS = 3600.0, 60.0
_PAUSE_SECONDS, _LOCAL_PAUSE_SECONDS = 15.0, 3.0
_LONGEST_FOUND = 5

Result = tuple[str, str]
"""Result of a row and its reason; the result "" asks to do the row, "n" to end the hour."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A command, and the regular expression that its output must match."""

    typed: str
    shows: str
    until: str = ""  # what to type it again for, in words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Commands to type, or something that only a person can do after them."""

    name: str
    minute: int
    steps: tuple[Step, ...] = ()
    do: str = ""
    shows: str
    remedy: str = ""
    after: tuple[str, ...] = ()  # rows without which this one can show nothing
    asks: str = ""  # "costs", or what it deletes
    run_minutes: float = 0.0  # expected duration of the training job; 0: the recipe's

    @property
    def what(self) -> str:
        """Return what to type or do, in Markdown."""
        typed = [
            f"`{'' if number else f'{COMMAND} '}{step.typed}`"
            + (f" until {step.until}" if step.until else "")
            for number, step in enumerate(self.steps)
        ]
        return ", then ".join([*typed, *filter(None, [self.do])])


@functools.cache
def load_rows() -> tuple[Row, ...]:
    """Return the rows of docs/first-hour.md, from first_hour.toml."""
    content = tomllib.loads(Path(__file__).with_name("first_hour.toml").read_text("utf-8"))
    return tuple(
        Row(**{**row, "steps": tuple(Step(**step) for step in row.get("steps", ()))})
        for row in content["rows"]
    )


def list_lines(recipe: str) -> Iterator[str]:
    """Yield the table of the rows in Markdown."""
    yield "| minute | type or do | shows | if it does not work |"
    yield "|---|---|---|---|"
    for row in load_rows():
        text = f"| {row.minute} | {row.what} | {row.shows} | {row.remedy} |"
        yield text.replace("{recipe}", recipe).replace("{hour}", "").replace("|  |", "| |")


@dataclasses.dataclass
class Hour:
    """The hour of a recipe and project, continued from its bundle if there is one."""

    recipe: str
    settings: Settings
    ask: Callable[[Row], Result]

    def __post_init__(self) -> None:
        if not os.access(Path.cwd(), os.W_OK):
            raise InputError(f"{Path.cwd()} can't be written; change to a folder of your own")
        now = datetime.datetime.now().astimezone()
        self.path, names = Path(f"first-hour-{now:%Y%m%d-%H%M%S}.json"), dict[str, str]()
        settings = {name: value for name, value in vars(self.settings).items() if value}
        about = {"recipe": self.recipe, "started": now.isoformat(), "settings": settings}
        about |= {"version": project_version(), "commit": git_commit()}
        self.bundle: dict[str, Any] = {"about": about, "rows": [], "pipelines": {}}
        for names_path in sorted(Path().glob("first-hour-*.names.json"), reverse=True):
            path = Path(f"{names_path}".replace(".names", ""))
            known, present = _read(names_path), _read(path)
            same = present.get("about", {}).get("recipe") == self.recipe
            same = same and self.settings.project in known
            if same and len(present["rows"]) < len(load_rows()):
                self.path, self.bundle, names = path, present, known
                say(f"continues {path}; to begin again, move that file")
                break
        self.scrubber, self._named = Scrubber(names), dict[str, str]()
        self.scrubber.learn("PROJECT", self.settings.project)
        endpoint, repository = self.settings.endpoint, self.settings.template_repository
        for url in (endpoint, repository if is_loopback(repository) else ""):
            self.scrubber.learn("HOST", urlsplit(url).netloc or url)
        self.scrubber.learn("TOKEN", os.environ.get(TOKEN_VARIABLE, ""))
        self.scrubber.find(about)
        self._start = datetime.datetime.fromisoformat(self.bundle["about"]["started"])

    def run(self) -> bool:
        """Do the rows that are not done yet; return False if the user ends the hour early."""
        results = {row["row"]: row["result"] for row in self.bundle["rows"]}
        for row in load_rows():
            if row.name in results:
                say(f"{row.name}: {results[row.name]}, earlier")
                continue
            say("", f"{'minute':10}{row.minute}: {self._fill(row.what)}")
            say(f"{'shows':10}{self._fill(row.shows)}")
            lacking = [name for name in row.after if results[name] != EXPECTED]
            commands: list[dict[str, Any]] = []
            if lacking:
                result, why = SKIPPED, f"needs the row {', '.join(lacking)}"
            else:
                result, why = self._do(row, commands)
            if result == "n":
                return False
            say(f"{'result':10}{result}{f': {why}' if why else ''}")
            results[row.name] = result
            self._keep(row, result, why, commands)
        return True

    def _do(self, row: Row, commands: list[dict[str, Any]]) -> Result:
        """Do a row; add its commands to the list."""
        if row.asks and (answer := self.ask(row))[0]:
            return answer
        for step in row.steps:
            commands += self._follow(step)
            if not commands[-1]["as expected"]:
                return OTHER, self._fill(row.remedy)
        return self.ask(row) if row.do else (EXPECTED, "")

    def _follow(self, step: Step) -> list[dict[str, Any]]:
        """Type a step until it shows what it should; return its commands, equal ones once."""
        deadline, done = time.monotonic() + _PATIENCE_SECONDS, [self._type(step)]
        local = is_loopback(self.settings.endpoint)
        if step.until and not done[-1]["as expected"]:
            say(f"waiting   until {step.until}")
        while step.until and not done[-1]["as expected"] and time.monotonic() < deadline:
            if _ENDED.search("\n".join(done[-1]["output"])):
                deadline = min(deadline, time.monotonic() + _PATIENCE_AFTER_END_SECONDS)
            time.sleep(_LOCAL_PAUSE_SECONDS if local else _PAUSE_SECONDS)
            done.append(self._type(step))
        say(*(f"{'found':10}{line}" for line in done[-1]["found"]))
        return list(
            fold(done, lambda command: [command["exit"], *map(comparable, command["exchanges"])])
        )

    def _type(self, step: Step) -> dict[str, Any]:
        """Run a command line in a process; return its output and its exchanges."""
        typed, start = self._fill(step.typed), time.time()
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "exchanges"
            record.touch()
            done = subprocess.run(
                [sys.executable, "-m", "pipelines", *shlex.split(typed)],
                env={**os.environ, VARIABLE: str(record), "COLUMNS": "250"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            lines = record.read_text(encoding="utf-8").splitlines()
        exchanges = [json.loads(line, object_hook=self._shorten) for line in lines]
        for exchange in exchanges:
            exchange["at"] = self._since(exchange["at"])
        output = done.stdout.rstrip()
        if typed.startswith("logs "):
            output = re.sub(r"^(workerpool[\w-]+: )?.*", rf"\1{LINE}", output, flags=re.MULTILINE)
        matches = [match[0] for match in re.finditer(step.shows, output, re.MULTILINE)]
        texts = [text.splitlines() or [""] for text in matches[:_LONGEST_FOUND] or [output]]
        return {
            "typed": f"{COMMAND} {typed}",
            "at": self._since(start),
            "seconds": round(time.time() - start, 1),
            "exit": done.returncode,
            "shows": step.shows,
            "as expected": bool(matches) and done.returncode == 0,
            "found": [" … ".join(dict.fromkeys((text[0], text[-1]))) for text in texts],
            "output": output.splitlines(),
            "exchanges": list(fold(exchanges, comparable)),
        }

    def _shorten(self, part: dict[str, Any]) -> dict[str, Any]:
        """Drop empty fields and the text of log lines, and name a compiled pipeline."""
        if "textPayload" in part:
            part["textPayload"] = LINE
        for name in {"jsonPayload", "protoPayload"} & part.keys():
            part[name] = {"message": LINE}
        if spec := part.get("pipelineSpec"):
            text = json.dumps(spec, sort_keys=True)
            self._named[text] = self._named.get(text) or self._name_pipeline(spec)
            part["pipelineSpec"] = self._named[text]
        return {name: value for name, value in part.items() if value is not None}

    def _name_pipeline(self, spec: dict[str, Any]) -> str:
        """Return the name of a compiled pipeline, which the bundle has only once."""
        self.scrubber.find(spec)
        scrubbed, known = self.scrubber.scrub(spec), self.bundle["pipelines"]
        same = [name for name, pipeline in known.items() if pipeline == scrubbed]
        name = same[0] if same else f"<PIPELINE-{len(known) + 1}>"
        known[name] = scrubbed
        return name

    def _keep(self, row: Row, result: str, why: str, commands: list[dict[str, Any]]) -> None:
        """Add a row to the bundle, and write it."""
        done: dict[str, Any] = {"row": row.name, "result": result, "why": why}
        done |= {"what": self._fill(row.what), "shows": self._fill(row.shows)}
        done |= {"states": list_states(commands), "commands": commands}
        self.bundle["rows"].append(done)
        self.scrubber.find(done)
        # Earlier rows may have names that are found only now.
        self.bundle = self.scrubber.scrub(self.bundle)
        files = {self.path.with_suffix(".names.json"): self.scrubber.names, self.path: self.bundle}
        for path, content in files.items():
            Path(f"{path}.partial").touch(mode=0o600)
            text = json.dumps(content, indent=1, ensure_ascii=False)
            storage.write_atomically(str(path), text.encode())

    def _fill(self, text: str) -> str:
        """Fill in a recipe, and the hour's start, which makes the names of its runs unique."""
        hour = f"-{self._start:%m%d-%H%M}"
        return text.replace("{recipe}", self.recipe).replace("{hour}", hour)

    def _since(self, moment: float) -> float:
        return round(moment - self._start.timestamp(), 3)


def fold(items: Iterable[dict[str, Any]], key: Callable[[Any], Any]) -> Iterator[dict[str, Any]]:
    """Yield items; of several in a row with the same key, only the last, with their number."""
    for _, group in itertools.groupby(items, key):
        alike = list(group)
        yield {**alike[-1], "times": len(alike)} if len(alike) > 1 else alike[-1]


def comparable(exchange: dict[str, Any]) -> str:
    """Return what distinguishes an exchange from others: everything but times."""
    times = dict.fromkeys(("at", "seconds", "times"))
    return TIME.sub("", json.dumps({**exchange, **times}, sort_keys=True))


def list_states(commands: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each new state of each resource that the answers of commands show."""
    states: dict[str, list[dict[str, Any]]] = {}
    for exchange in (exchange for command in commands for exchange in command["exchanges"]):

        def note(part: dict[str, Any], at: float = exchange["at"]) -> None:
            if {"name", "state"} <= part.keys():
                known = states.setdefault(part["name"], [])
                if not known or known[-1]["state"] != part["state"]:
                    known.append({"at": at, "name": part["name"], "state": part["state"]})

        json.loads(json.dumps(exchange.get("answer")), object_hook=note)
    return [state for known in states.values() for state in known]


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if it is missing or damaged."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
