"""Lists are filtered and sorted as AIP-160 and AIP-132 say."""

import pytest
from google.cloud.aiplatform_v1 import types

from vertex.emulator.api_error import ApiError
from vertex.emulator.list_filters import parse_filter, parse_order

JOBS = [
    types.PipelineJob(
        display_name=name,
        state=state,
        labels=labels,
        create_time={"seconds": seconds},
        runtime_config={"gcs_output_directory": f"gs://b/{name}"},
    )
    for name, state, labels, seconds in (
        ("train a", "PIPELINE_STATE_FAILED", {"team": "vision", "my.key": "1"}, 1_770_000_000),
        ("train b", "PIPELINE_STATE_SUCCEEDED", {"team": "speech"}, 1_780_000_000),
        ('say "c"', "PIPELINE_STATE_SUCCEEDED", {}, 1_790_000_000),
    )
]
METADATA = [
    types.Execution(schema_title="system.Run", metadata={"rows": rows, "kind": kind})
    for rows, kind in ((3, "a"), (40, "b"))
]


def names(text):
    return [job.display_name[-1].strip('"') or "c" for job in filter(parse_filter(text), JOBS)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "a b c"),
        ('display_name="train a"', "a"),
        ('displayName="train*"', "a b"),
        ('display_name!="train*"', "c"),
        (r'display_name="say \"c\""', "c"),
        ("state=PIPELINE_STATE_FAILED", "a"),
        ('labels.team="vision" OR labels.team="speech"', "a b"),
        ('labels."my.key"=1', "a"),
        ("labels:team", "a b"),
        ("labels.team:*", "a b"),
        ("NOT labels:team", "c"),
        ("-labels:team", "c"),
        ('labels.team!="vision"', "b c"),
        ('create_time>"2026-05-01T00:00:00Z"', "b c"),
        ('create_time<="2026-05-01"', "a"),
        ('runtime_config.gcs_output_directory:"train"', "a b"),
        # OR binds more closely than AND.
        ('display_name="train a" OR labels:team AND state=PIPELINE_STATE_SUCCEEDED', "b"),
        ('display_name="train a" OR (labels:team AND state=PIPELINE_STATE_SUCCEEDED)', "a b"),
        ('labels:team labels.team="speech"', "b"),
    ],
)
def test_filter_finds_what_it_says(text, found):
    assert names(text) == found.split()


def test_metadata_is_compared_by_its_type():
    def kinds(text):
        return [one.metadata["kind"] for one in filter(parse_filter(text), METADATA)]

    assert kinds("metadata.rows.number_value > 5") == ["b"]
    assert kinds("metadata.rows > 5") == ["b"]
    assert kinds('metadata.kind.string_value="a"') == ["a"]
    assert kinds("metadata.other.number_value > 5") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cost=3", "'cost' is not a field of PipelineJob"),
        ("labels.team=", "can't be read from"),
        ('labels.team="a', "can't be read from"),
        ("(state=X", "can't be read from"),
        ("state=X)", "can't be read from"),
        ("during(3)", "can't be read from"),
        ("create_time>noon", "'noon' is not a time"),
        ("runtime_config=3", "a value with parts"),
    ],
)
def test_malformed_filter_is_refused(text, problem):
    with pytest.raises(ApiError, match=problem):
        names(text)


def test_order_has_several_fields_and_directions():
    def order(text):
        return [job.display_name[-1].strip('"') or "c" for job in parse_order(text)(JOBS)]

    assert order("create_time desc") == ["c", "b", "a"]
    assert order("state desc, create_time") == ["b", "c", "a"]
    assert order("state, createTime desc") == ["a", "c", "b"]
    with pytest.raises(ApiError, match="neither asc nor desc"):
        order("create_time down")
    with pytest.raises(ApiError, match="is not a field"):
        order("description")
