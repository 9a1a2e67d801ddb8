"""The report's page is complete, self-contained, small and quick to write."""

import dataclasses
import re
import time

import matplotlib as mpl
import numpy as np
import pytest

from tests.trainer.report.report_page import HOSTILE, TRAINING


def assert_self_contained(page):
    """Check that the page fetches nothing and runs nothing."""
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "form", "base"}
    assert all(image["src"].startswith("data:image/") for image in page.all("img"))
    assert not re.search(r"@import|url\((?!#)", page.source)
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "xlink:href"}:
                assert value.startswith(("data:", "#"))
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta)
    assert policy["content"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("classes", "right"), [(2, 0.7), (5, 0.5), (10, 1.0), (12, 0.0), (30, 0.6)]
)
def test_page_is_well_formed_and_has_every_section(render, classes, right):
    page = render(classes, right=right)
    assert page.open == []
    assert " ".join(page.ids()) == (
        "summary learning confusion curves calibration classes mistakes balance data recipe "
        "environment"
    )
    assert {link["href"] for link in page.all("a")} == {f"#{name}" for name in page.ids()[1:]}
    assert len(page.all("svg")) == 5
    assert "nan" not in page.text.lower().split()
    assert len(page.source) < 500_000
    assert_self_contained(page)


@pytest.mark.parametrize("classes", [2, 5, 30])
def test_hostile_names_stay_text(render, classes):
    page = render(
        classes,
        hostile=True,
        dataset={
            "name": HOSTILE,
            "rejected": {"count": 1, "reasons": {HOSTILE: 1}, "file": HOSTILE},
            "creation": {HOSTILE: HOSTILE, "options": {HOSTILE: [HOSTILE]}},
        },
        title=HOSTILE,
        details={HOSTILE: HOSTILE, "list": [HOSTILE], "object": {HOSTILE: HOSTILE}},
        training={**TRAINING, "model": HOSTILE, "stopped_phases": [HOSTILE], "strategy": HOSTILE},
    )
    assert page.open == []
    assert_self_contained(page)
    assert page.text.count(HOSTILE) >= 10
    assert HOSTILE in page.words  # a name, whole and as it was


def test_pictures_leave_the_page_below_its_limit(render, evaluated):
    mistake, random = evaluated()[0].mistakes[0], np.random.default_rng(0)
    noise = [random.integers(0, 256, (299, 299, 3), np.uint8) for _ in range(24)]
    noisy = [dataclasses.replace(mistake, picture=picture) for picture in noise]
    assert len(render(evaluation={"mistakes": noisy}).source) < 1_500_000


def test_page_is_reproducible_and_matplotlib_unchanged(render, drawings):
    before = dict(mpl.rcParams)
    page = render()
    drawings.clear()
    assert render().source == page.source
    assert dict(mpl.rcParams) == before


def test_undecodable_file_name_is_replaced(render, evaluated):
    odd = dataclasses.replace(evaluated()[0].mistakes[0], key="photo-\udce9.jpg")
    assert "photo-?.jpg" in render(evaluation={"mistakes": [odd]}).text


def test_page_takes_a_small_part_of_a_short_run(render, evaluated, drawings):
    evaluated(10, right=0.9)
    drawings.clear()
    started = time.process_time()
    render(10, right=0.9)
    assert time.process_time() - started < 3
