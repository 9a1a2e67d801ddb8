"""The cache of task outputs, as two runs of one folder use it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kfp import dsl

from pipelines.local.cache import read_entry, write_entry
from pipelines.local.journal import Journal
from tests.pipelines.local.test_execution import start, states


def test_runs_that_end_the_same_task_at_the_same_moment_leave_an_entry_that_holds(tmp_path):
    ready = threading.Barrier(2)
    records = tmp_path / "records"
    records.mkdir()
    for number in range(50):
        (records / f"{number}.tfrecord").write_bytes(b"1234")

    entry = tmp_path / "cache" / "key.json"

    def put(_):
        for _ in range(100):
            ready.wait(60)
            write_entry(entry, {"records": dsl.Dataset(name="records", uri=str(records))})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(2)))
    assert read_entry(entry)["records"].uri == str(records)
    (records / "7.tfrecord").write_bytes(b"1235")
    assert read_entry(entry) is None
    (records / "7.tfrecord").write_bytes(b"1234")
    assert read_entry(entry)
    (records / "7.tfrecord").unlink()
    assert read_entry(entry) is None
    assert not list((tmp_path / "cache").glob("*.partial"))


@pytest.mark.parametrize("change", [("abc", "abd"), ("12", "13"), ("5", "6")])
def test_a_value_that_was_changed_in_an_entry_is_not_believed(tmp_path, change):
    records = dsl.Dataset(name="records", uri=str(tmp_path / "records"), metadata={"examples": 5})
    (tmp_path / "records").write_bytes(b"1234")
    Journal(tmp_path).put("plan", {"digest": "abc", "count": 12, "records": records})
    assert Journal(tmp_path).get("plan")
    entry = tmp_path / ".completed" / "plan.json"
    text = entry.read_text()
    assert change[0] in text
    entry.write_text(text.replace(*change))
    assert Journal(tmp_path).get("plan") is None


def test_a_task_that_hands_on_more_than_vertex_ai_takes_fails(small_package, tmp_path):
    for _ in range(2):  # What it wrote is no entry of the cache either.
        result, shown = start(small_package, tmp_path, source="wordy")
        assert result.state == "FAILED"
        assert "as JSON, but Vertex AI allows 131,072; write them to an artifact" in shown
        assert states(result)["custom-training-job"] == "NOT_TRIGGERED"


@pytest.mark.parametrize("text", ["[" * 99_999, "[]", "{}", '{"outputs": 1', "\x00", "null"])
def test_a_damaged_entry_of_the_journal_is_absent(tmp_path, text):
    Journal(tmp_path).put("plan", {"digest": "abc"})
    assert Journal(tmp_path).get("plan") == {"digest": "abc"}
    (tmp_path / ".completed" / "plan.json").write_text(text)
    journal = Journal(tmp_path)
    journal.put("later", {"digest": "def"})
    assert journal.get("plan") is None
    assert journal.get("later") is None
