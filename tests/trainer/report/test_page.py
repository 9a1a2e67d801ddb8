"""The page is whole, needs nothing but itself, and stays small and quick."""

import dataclasses
import re
import time

import matplotlib as mpl
import numpy as np
import pytest

from tests.trainer.report.document import HOSTILE, TRAINING, report


@pytest.mark.parametrize(
    ("classes", "right"), [(2, 0.7), (5, 0.5), (10, 1.0), (12, 0.0), (30, 0.6)]
)
def test_every_section_is_there_and_the_page_is_well_formed(tmp_path, evaluated, classes, right):
    page = report(tmp_path / "report.html", *evaluated(classes, right=right))
    assert page.open == []
    assert page.ids() == [
        *("summary", "learning", "confusion", "curves", "calibration", "classes", "mistakes"),
        *("balance", "data", "recipe", "environment"),
    ]
    assert {link["href"] for link in page.all("a")} == {f"#{one}" for one in page.ids()[1:]}
    assert len(page.all("svg")) == 5
    assert "nan" not in page.text.lower().split()
    assert len(page.source) < 500_000


def test_nothing_is_fetched_and_nothing_runs(tmp_path, evaluated):
    page = report(tmp_path / "report.html", *evaluated(30))
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


@pytest.mark.parametrize("classes", [2, 5, 30])
def test_names_of_classes_files_and_parameters_stay_text(tmp_path, evaluated, classes):
    evaluation, dataset = evaluated(classes, hostile=True)
    dataset = dataclasses.replace(
        dataset,
        name=HOSTILE,
        rejected={"count": 1, "reasons": {HOSTILE: 1}, "file": HOSTILE},
        creation={HOSTILE: HOSTILE, "options": {HOSTILE: [HOSTILE]}},
    )
    changes = {
        "title": HOSTILE,
        "details": {HOSTILE: HOSTILE, "list": [HOSTILE], "object": {HOSTILE: HOSTILE}},
        "training": {
            **TRAINING,
            "model": HOSTILE,
            "stopped_phases": [HOSTILE],
            "strategy": HOSTILE,
        },
    }
    page = report(tmp_path / "report.html", evaluation, dataset, **changes)
    assert page.open == []
    assert not page.all("script")
    assert all(image["src"].startswith("data:") for image in page.all("img"))
    assert page.text.count(HOSTILE) >= 10
    assert HOSTILE in page.words  # a name, whole and as it was


def test_large_noisy_pictures_leave_the_page_below_its_limit(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    random = np.random.default_rng(0)
    noisy = [
        dataclasses.replace(
            evaluation.mistakes[0], picture=random.integers(0, 256, (299, 299, 3), np.uint8)
        )
        for _ in range(24)
    ]
    evaluation = dataclasses.replace(evaluation, mistakes=noisy)
    report(tmp_path / "report.html", evaluation, dataset)
    assert (tmp_path / "report.html").stat().st_size < 1_500_000


def test_the_same_run_gives_the_same_page_and_leaves_matplotlib_as_it_was(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    before = dict(mpl.rcParams)
    first = report(tmp_path / "a.html", evaluation, dataset).source
    assert report(tmp_path / "b.html", evaluation, dataset).source == first
    assert dict(mpl.rcParams) == before


def test_file_names_that_are_no_text_do_not_break_the_page(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    odd = dataclasses.replace(evaluation.mistakes[0], key="photo-\udce9.jpg")
    evaluation = dataclasses.replace(evaluation, mistakes=[odd])
    assert "photo-?.jpg" in report(tmp_path / "report.html", evaluation, dataset).text


def test_drawing_takes_a_small_part_of_a_short_run(tmp_path, evaluated):
    evaluation, dataset = evaluated(10, right=0.9)
    started = time.process_time()
    report(tmp_path / "report.html", evaluation, dataset)
    assert time.process_time() - started < 3
