"""The cache of task outputs, also when two runs share it, and the journal of a run."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from components.planning import code_digest
from pipelines.local.local_programs import digest_code_of
from pipelines.runs import run_folders
from tests.pipelines.local.package_runs import run_small, states
from vertex.emulator.engine.output_cache import Journal, read_entry, write_entry
from vertex.emulator.engine.task_inputs import Artifact


def test_concurrent_writers_leave_a_valid_entry(tmp_path):
    ready = threading.Barrier(2)
    records = tmp_path / "records"
    records.mkdir()
    for number in range(50):
        (records / f"{number}.tfrecord").write_bytes(b"1234")
    entry = tmp_path / "cache" / "key.json"

    def put(_):
        for _ in range(100):
            ready.wait(60)
            write_entry(
                entry, {"records": Artifact("records", str(records), "system.Dataset")}, tmp_path
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(2)))
    assert read_entry(entry, tmp_path)["records"].uri == str(records)
    (records / "7.tfrecord").write_bytes(b"1235")
    assert read_entry(entry, tmp_path) is None
    (records / "7.tfrecord").write_bytes(b"1234")
    assert read_entry(entry, tmp_path)
    (records / "7.tfrecord").unlink()
    assert read_entry(entry, tmp_path) is None
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_metrics_without_a_file_are_reused(tmp_path):
    metrics = Artifact("metrics", str(tmp_path / "metrics"), "system.Metrics", "", {"loss": 0.5})
    Journal(tmp_path).put("evaluate-model", {"metrics": metrics})
    assert Journal(tmp_path).get("evaluate-model") == {"metrics": metrics}


def test_entry_of_another_task_or_run_is_not_used(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_entry(first, {"digest": "1"}, tmp_path)
    assert read_entry(first, tmp_path) == {"digest": "1"}
    first.rename(second)
    assert read_entry(second, tmp_path) is None
    runs = [tmp_path / "digits-1", tmp_path / "digits-2"]
    for run in runs:
        Journal(run).put("plan-training", {"digest": run.name})
    assert Journal(runs[0]).get("plan-training") == {"digest": "digits-1"}
    (runs[1] / ".completed").rename(tmp_path / "aside")
    (runs[0] / ".completed").rename(runs[1] / ".completed")
    assert Journal(runs[1]).get("plan-training") is None


def test_runs_move_with_their_cache_and_journals(small_package, tmp_path):
    before, _ = run_small(small_package, tmp_path / "runs")
    (tmp_path / "moved").mkdir()
    moved = (tmp_path / "runs").rename(tmp_path / "moved" / "runs")
    run = run_folders.load(moved / before.directory.name)
    assert str(tmp_path / "runs") not in repr(run) and str(moved) in repr(run)
    assert run_folders.find(moved, "latest") == moved / before.directory.name
    records = Journal(moved / before.directory.name).get("create-records")
    assert str(moved) in repr(records)
    after, _ = run_small(small_package, moved)
    assert states(after.summary)["create-records"] == "CACHED"


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "def f():\n    from trainer.writer import write"],
        ["python3", "-m", "kfp.dsl.executor_main", "--function_to_execute", "step"],
    ],
)
def test_digest_depends_on_imported_code(tmp_path, monkeypatch, command):
    kinds = tmp_path / "trainer" / "kinds"
    facts = tmp_path / "vertex" / "facts"
    for package in (kinds.parent, kinds, facts.parent, facts, tmp_path / "components"):
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
    (tmp_path / "components" / "step.py").write_text("from trainer.writer import write\n")
    monkeypatch.setattr("pipelines.local.local_programs.ROOT", tmp_path)

    def write(**modules):
        for name, text in modules.items():
            (tmp_path / "trainer" / f"{name}.py").write_text(text)
        return digest_code_of(command)

    writer = "from trainer import (\n    schema,\n)"
    first = write(writer=writer, schema="A = 1", models="B = 1")
    assert write(models="B = 2") == first
    assert write(schema="A = 2") != first
    assert write(schema="A = 1") == first
    (kinds / "__init__.py").write_text("from trainer import plugins")
    (kinds / "one.py").write_text("C = 1")
    declared = write(schema="from trainer import kinds")
    (kinds / "one.py").write_text("C = 2")
    assert len({first, declared, write()}) == 3
    write(schema="A = 1")
    (tmp_path / "requirements.lock").write_text("pillow==12.1.0")
    locked = write()
    (tmp_path / "requirements.lock").write_text("pillow==12.2.0")
    assert len({first, locked, write()}) == 3
    (facts / "jobs.py").write_text("D = 1")
    named = write(schema="from vertex.facts import jobs")
    (facts / "jobs.py").write_text("D = 2")
    assert write() != named


def test_code_digest_covers_every_package_of_an_image(tmp_path, monkeypatch):
    monkeypatch.setattr(code_digest, "ROOT", tmp_path)
    digests = {code_digest.code_digest()}
    for name in ("components", "trainer", "vertex/facts", *code_digest.OUTSIDE):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "one.py").touch()
        digests.add(code_digest.code_digest())
    assert len(digests) == 4


def test_oversized_output_fails_the_task(small_package, tmp_path):
    for _ in range(2):  # The output is not cached either.
        result, shown = run_small(small_package, tmp_path, source="wordy")
        assert result.state == "FAILED"
        assert "as JSON, but Vertex AI allows 131,072; write them to an artifact" in shown
        assert states(result.summary)["custom-training-job"] == "NOT_TRIGGERED"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *(("abc", "abd"), ("12", "13"), ("5", "6")),
        *((".+", text) for text in ("[" * 99_999, "[]", "{}", '{"outputs": 1', "\x00", "null")),
    ],
    ids=lambda value: value[:13],
)
def test_damaged_journal_entry_is_ignored(tmp_path, pattern, text):
    uri = str(tmp_path / "records")
    records = Artifact("records", uri, "system.Dataset", metadata={"examples": 5})
    (tmp_path / "records").write_bytes(b"1234")
    Journal(tmp_path).put("plan", {"digest": "abc", "count": 12, "records": records})
    assert Journal(tmp_path).get("plan")["digest"] == "abc"
    entry = tmp_path / ".completed" / "plan.json"
    whole = entry.read_text()
    entry.write_text(re.sub(pattern, text, whole, flags=re.DOTALL))
    assert entry.read_text() != whole
    assert Journal(tmp_path).get("plan") is None
