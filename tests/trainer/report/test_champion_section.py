"""The report says which model won, by how much, and how certain that is."""

import dataclasses

import pytest

from trainer.evaluation.comparison import Comparison
from trainer.evaluation.gate import Verdict
from trainer.report.document import describe_outcome

BETTER = "better than the champion digits@1"
SCORES = ", accuracy 0.9788 against 0.7725"
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
VERDICT = Verdict(
    accepted=True,
    role="champion",
    reason=BETTER,
    champion="digits@1",
    rule="better",
    margin=0.01,
    comparison=RESULT,
)


@pytest.fixture
def page(render):
    """Return a function that writes the report of a changed verdict."""
    return lambda **changes: render(2, verdict=dataclasses.replace(VERDICT, **changes))


def test_section_has_the_verdict_and_all_figures(page):
    text = page().section("champion")
    for words in (
        "<strong>Accepted</strong>: better than the champion digits@1",
        "+0.2063",
        "+0.1622 to +0.2587, each bound at 95% confidence",
        *("0.9788", "0.7725", "39", "189", "1.8e-12"),
        "exact McNemar test",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("low", "high", "place"), [(0, 0, "0.5000"), (-1, 1, "0.1000"), (-0.1, 0.1, "0.1000")]
)
def test_drawing_has_no_difference_in_its_middle(page, low, high, place):
    result = dataclasses.replace(RESULT, low=low, high=high)
    text = page(comparison=result).section("champion")
    assert f"--low:{place};--high:{1 - float(place):.4f}" in text
    assert 'class="baseline" style="--at:0.5"' in text


def test_verdict_without_a_comparison_has_its_reason_alone(page):
    document = page(accepted=False, comparison=None, reason="<b>no</b> model at x")
    summary, text = document.section("summary"), document.section("champion")
    for section in (summary, text):
        assert "<strong>Rejected</strong>: &lt;b&gt;no&lt;/b&gt; model at x" in section
    assert "digits@1" in text
    assert 'class="scale"' not in text
    assert 'href="#champion"' in summary
    first = page(champion="", comparison=None)
    assert "champion" not in first.ids() and "#champion" not in first.source


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reason": f"{BETTER}: and more"}, f"{BETTER}{SCORES}. It becomes the champion."),
        ({"champion": "", "comparison": None, "role": ""}, f"{BETTER}. It is not registered."),
        (
            {"accepted": False, "role": ""},
            f"{BETTER}{SCORES}. It is not registered; the champion stays.",
        ),
        (
            {"accepted": False, "role": "challenger"},
            f"{BETTER}{SCORES}. It is registered as challenger; the champion stays.",
        ),
    ],
)
def test_outcome_gives_the_reason_and_what_follows(changes, expected):
    outcome = describe_outcome(dataclasses.replace(VERDICT, **changes))
    assert f"{outcome['reason']}. {outcome['effect']}" == expected
