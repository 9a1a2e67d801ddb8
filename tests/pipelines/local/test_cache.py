"""The cache of task outputs, as two runs of one folder use it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kfp import dsl

from pipelines.local.cache import WholeCache
from pipelines.local.journal import Journal
from tests.pipelines.local.test_execution import start, states


def test_runs_that_end_the_same_task_at_the_same_moment_leave_an_entry_that_holds(tmp_path):
    ready = threading.Barrier(2)
    records = tmp_path / "records"
    records.mkdir()
    for number in range(50):
        (records / f"{number}.tfrecord").write_bytes(b"1234")

    def put(_):
        cache = WholeCache(str(tmp_path / "cache"))
        for _ in range(100):
            ready.wait(60)
            cache.put("key", {"records": dsl.Dataset(name="records", uri=str(records))})
        return cache

    with ThreadPoolExecutor(2) as pool:
        cache, _ = pool.map(put, range(2))
    assert cache.get("key")["records"].uri == str(records)
    (records / "7.tfrecord").write_bytes(b"1235")
    assert cache.get("key") is None
    (records / "7.tfrecord").write_bytes(b"1234")
    assert cache.get("key")
    (records / "7.tfrecord").unlink()
    assert cache.get("key") is None
    assert not list((tmp_path / "cache").glob("*.partial"))


@pytest.mark.parametrize("change", [("abc", "abd"), ("12", "13"), ("5", "6")])
def test_a_value_that_was_changed_in_the_cache_is_not_believed(tmp_path, change):
    records = dsl.Dataset(name="records", uri=str(tmp_path / "records"), metadata={"examples": 5})
    (tmp_path / "records").write_bytes(b"1234")
    outputs = {"digest": "abc", "count": 12, "records": records}
    WholeCache(str(tmp_path)).put("key", outputs)
    Journal(tmp_path).put("plan", outputs)
    assert WholeCache(str(tmp_path)).get("key") and Journal(tmp_path).get("plan")
    for entry in (tmp_path / "key.json", tmp_path / ".completed" / "plan.json"):
        text = entry.read_text()
        assert change[0] in text
        entry.write_text(text.replace(*change))
    assert WholeCache(str(tmp_path)).get("key") is None
    assert Journal(tmp_path).get("plan") is None


def test_a_task_that_hands_on_more_than_vertex_ai_takes_fails(small_package, tmp_path):
    for _ in range(2):  # What it wrote is no entry of the cache either.
        result, shown = start(small_package, tmp_path, source="wordy")
        assert result.state == "FAILED"
        assert "as JSON, but Vertex AI allows 131,072; write them to an artifact" in shown
        assert states(result)["custom-training-job"] == "NOT_TRIGGERED"


@pytest.mark.parametrize("text", ["[" * 99_999, "[]", "{}", '{"outputs": 1', "\x00", "null"])
def test_a_damaged_entry_of_cache_or_journal_is_absent(tmp_path, text):
    cache = WholeCache(str(tmp_path))
    cache.put("key", {"digest": "abc"})
    assert cache.get("key") == {"digest": "abc"}
    (tmp_path / "key.json").write_text(text)
    assert cache.get("key") is None
    Journal(tmp_path).put("plan", {"digest": "abc"})
    assert Journal(tmp_path).get("plan") == {"digest": "abc"}
    (tmp_path / ".completed" / "plan.json").write_text(text)
    journal = Journal(tmp_path)
    journal.put("later", {"digest": "def"})
    assert journal.get("plan") is None
    assert journal.get("later") is None
