"""The report says who won, by how much, and how sure that is."""

import dataclasses

import pytest

from tests.trainer.report.document import report
from trainer.evaluation.comparison import Comparison
from trainer.evaluation.gate import Verdict
from trainer.report.document import outcome

RESULT = Comparison(
    metric="accuracy",
    examples=189,
    candidate=0.9788,
    champion=0.7725,
    difference=0.2063,
    low=0.1622,
    high=0.2587,
    p_value=1.8e-12,
    candidate_only=39,
    champion_only=0,
    confidence=0.95,
)


def verdict(**changes):
    values = {
        "accepted": True,
        "role": "champion",
        "reason": "better than the champion digits@1",
        "champion": "digits@1",
        "rule": "better",
        "margin": 0.01,
        "comparison": RESULT,
    }
    return Verdict(**{**values, **changes})


@pytest.fixture
def page(tmp_path, evaluated):
    """The report of a small model with a verdict."""
    return lambda one: report(tmp_path / "r.html", *evaluated(2), verdict=one)


def test_the_section_has_the_verdict_and_every_figure_of_the_comparison(page):
    text = page(verdict()).section("champion")
    for words in (
        "<strong>Accepted</strong>: better than the champion digits@1",
        "+0.2063",
        "+0.1622 to +0.2587, each bound at 95% confidence",
        "0.9788",
        "0.7725",
        "39",
        "189",
        "1.8e-12",
        "exact McNemar test",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("low", "high", "drawn"), [(0, 0, "0.5000"), (-1, 1, "0.1000"), (-0.1, 0.1, "0.1000")]
)
def test_the_drawing_has_no_difference_in_its_middle(page, low, high, drawn):
    result = dataclasses.replace(RESULT, low=low, high=high)
    text = page(verdict(comparison=result)).section("champion")
    assert f"--low:{drawn};--high:{1 - float(drawn):.4f}" in text
    assert 'class="baseline" style="--at:0.5"' in text


def test_without_a_comparison_the_reason_stands_alone_and_is_text(page):
    bare = verdict(accepted=False, comparison=None, reason="<b>no</b> model at x")
    document = page(bare)
    assert "<strong>Rejected</strong>: &lt;b&gt;no&lt;/b&gt; model" in document.section("summary")
    text = document.section("champion")
    assert "<strong>Rejected</strong>: &lt;b&gt;no&lt;/b&gt; model at x" in text
    assert "digits@1" in text
    assert 'class="scale"' not in text
    assert 'href="#champion"' in document.section("summary")
    first = page(verdict(champion="", comparison=None))
    assert "champion" not in first.ids() and "#champion" not in first.source


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"reason": "better than the champion digits@1 at 95% confidence: and more"},
            "better than the champion digits@1 at 95% confidence, "
            "accuracy 0.9788 against 0.7725. It becomes the champion.",
        ),
        (
            {"champion": "", "comparison": None, "role": "", "reason": "accuracy 0.9 is enough"},
            "accuracy 0.9 is enough. It is not registered.",
        ),
        ({"accepted": False, "role": ""}, "It is not registered; the champion stays."),
        ({"accepted": False, "role": "challenger"}, "It is registered as challenger; the champion"),
    ],
)
def test_the_page_begins_with_what_the_gate_said_and_what_follows(changes, words):
    told = outcome(verdict(**changes))
    assert words in f"{told['reason']}. {told['follows']}"
