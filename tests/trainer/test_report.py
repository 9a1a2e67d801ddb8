import dataclasses
import html.parser
import re
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation import evaluate
from trainer.report import write_report
from trainer.slices import Slice, Slices

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)> & $\\frac{1}{2}$"
TRAINING = {
    "epochs": 3,
    "best_epoch": 2,
    "seconds": 75.0,
    "images_per_second": 5321.4,
    "strategy": "MultiWorkerMirroredStrategy",
    "replicas": 2,
    "model": "small_cnn",
    "parameters": 60554,
    "train": {"loss": 0.02, "accuracy": 0.99},
    "validation": {"loss": 0.5, "accuracy": 0.80},
    "versions": {"tensorflow": "2.21.0"},
}
# As csv.DictReader gives them: text, and nothing where there was no validation.
HISTORY = [
    {
        "epoch": str(epoch),
        "loss": str(1 / epoch),
        "accuracy": "0.9",
        "validation_loss": "" if epoch == 2 else str(1.1 / epoch),
        "validation_accuracy": "" if epoch == 2 else "0.5",
        "learning_rate": "0.001",
        "images_per_second": "5000",
        "input_wait_fraction": "0.4",
        "seconds": "1.5",
    }
    for epoch in (1, 2, 3)
]


class Page(html.parser.HTMLParser):
    """What a browser would make of a report."""

    def __init__(self, file: Path):
        super().__init__()
        self.source = file.read_text()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(self.source)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]

    def ids(self) -> list[str]:
        return [attributes["id"] for attributes in self.all("section")]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """(evaluation, data set) of n classes, built once for each set of arguments."""
    built = {}

    def judge(classes: int, *, right: float = 0.7, hostile: bool = False):
        case = (classes, right, hostile)
        if case not in built:
            folder = tmp_path_factory.mktemp("report")
            names = [f"class-{index}" for index in range(classes)]
            keys = None
            n = max(60, 3 * classes)
            if hostile:
                names[1] = HOSTILE
                keys = [f"{HOSTILE}/{index}.jpg" for index in range(n)]
            random = np.random.default_rng(0)
            labels = random.integers(0, classes, n)
            pixels = random.integers(1, 40, (n, classes)).astype(np.uint8)
            pixels[np.arange(n), labels] += (200 * (random.random(n) < right)).astype(np.uint8)
            dataset = write_records(folder / "records", names, labels, pixels, keys=keys)
            model = write_model(folder / "model", names)
            built[case] = evaluate(model, dataset.uri, progress=lambda _: None), dataset
        return built[case]

    return judge


def report(file: Path, evaluation, dataset, **changes) -> Page:
    content = {
        "training": TRAINING,
        "history": HISTORY,
        "title": "A run",
        "details": {"epochs": 3, "xla": False, "model_options": {"units": 64}},
    }
    write_report(str(file), evaluation=evaluation, dataset=dataset, **{**content, **changes})
    return Page(file)


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
        "training": {**TRAINING, "model": HOSTILE, "stopped": HOSTILE, "strategy": HOSTILE},
    }
    page = report(tmp_path / "report.html", evaluation, dataset, **changes)
    assert page.open == []
    assert not page.all("script")
    assert all(image["src"].startswith("data:") for image in page.all("img"))
    assert page.text.count(HOSTILE) >= 10
    assert HOSTILE in page.words  # a name, whole and as it was


def test_the_summary_tells_accuracy_interval_time_speed_model_and_replicas(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    page = report(tmp_path / "report.html", evaluation, dataset)
    right = sum(evaluation.confusion_matrix[index][index] for index in range(5))
    assert f"{right} of 60 examples right" in page.text
    low, high = evaluation.accuracy_interval
    assert f"{100 * evaluation.accuracy:.1f}%" in page.text
    assert f"95% interval {100 * low:.1f}% to {100 * high:.1f}%" in page.text
    for words in ("1 min 15 s", "5,321 examples/s", "60,554 parameters"):
        assert words in page.text
    assert "small_<wbr>cnn" in page.source
    assert "MultiWorkerMirrored" in page.text


def test_what_stands_out_is_said(tmp_path, evaluated):
    page = report(tmp_path / "report.html", *evaluated(5, right=0.0))
    assert "Not reliably better than always answering" in page.text
    assert "Overfitting: 99.0% right in training, 80.0% in validation." in page.text
    assert "40% of the training time went into waiting for input" in page.text
    page = report(tmp_path / "report.html", *evaluated(10, right=1.0), training={}, history=[])
    assert "Every example of every class was recognized." in page.text
    assert "Overfitting" not in page.text


def test_a_gap_that_a_small_validation_split_may_have_by_chance_is_no_overfitting(
    tmp_path, evaluated
):
    evaluation, dataset = evaluated(5)
    told = []
    for examples in (20, 2000):
        split = dataset.splits["test"]
        shard = dataclasses.replace(split.shards[0], examples=examples)
        split = dataclasses.replace(split, shards=[shard])
        larger = dataclasses.replace(dataset, splits={**dataset.splits, "validation": split})
        training = {**TRAINING, "train": {"accuracy": 0.92}, "validation": {"accuracy": 0.85}}
        page = report(tmp_path / "report.html", evaluation, larger, training=training)
        told.append("Overfitting" in page.text)
    assert told == [False, True]


def test_the_slice_that_fails_by_more_than_chance_is_named(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)

    def told(accuracy: float, examples: int) -> str:
        part = Slice(
            name="card", examples=examples, accuracy=accuracy, positive_rate=0.3, roc_auc=0.5
        )
        cut = Slices(column="payment", by="by value", slices=[part])
        judged = dataclasses.replace(evaluation, accuracy=0.9, slices=[cut])
        return report(tmp_path / "report.html", judged, dataset).text

    words = "Weakest where payment is card : 70.0% of 400 examples right; a constant answer"
    assert words in told(0.7, 400)
    assert "would get 70.0%" in told(0.7, 400)
    assert "Weakest where" not in told(0.7, 20)
    assert "Weakest where" not in told(0.95, 400)


def test_a_column_that_is_all_but_empty_is_named(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    features = [
        dataclasses.replace(
            dataset.features[0], name=name, statistics={"missing": {"train": share}}
        )
        for name, share in (("tract", 0.999), ("company", 0.3))
    ]
    dataset = dataclasses.replace(dataset, features=[*dataset.features, *features])
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert "tract has no value in 99.9% of the training rows" in page.text
    assert "company has no value" not in page.text


def test_what_was_set_for_the_run_is_told_apart_from_defaults(tmp_path, evaluated):
    details = {"worker_count": 2.0, "xla": False, "epochs": 12, "learning_rate": 0.001}
    page = report(tmp_path / "report.html", *evaluated(5), details=details)
    recipe = page.source.split('id="recipe"')[1].split("</section>")[0]
    own, folded = recipe.split("<details>")
    assert own.index("epochs") < own.index("worker_<wbr>count")
    assert "2 more parameters, at their default" in folded
    assert "xla" in folded and "learning_<wbr>rate" in folded
    assert "chief, 2 workers" in page.text


def test_the_confusion_matrix_shows_every_count(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    page = report(tmp_path / "report.html", evaluation, dataset)
    body = page.source.split('class="confusion')[1].split("<tbody>")[1].split("</tbody>")[0]
    shown = [re.findall(r">(\d+)</td>", line) for line in body.split("</tr>")[:-1]]
    assert [[int(cell) for cell in line] for line in shown] == evaluation.confusion_matrix


def test_the_confusion_matrix_of_many_classes_is_a_picture_with_the_commonest(tmp_path, evaluated):
    evaluation, dataset = evaluated(30)
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert [image for image in page.all("img") if image.get("class") == "heat"]
    assert page.source.count("<td") < 30 * 30
    commonest = max(
        (cell, row, column)
        for row, line in enumerate(evaluation.confusion_matrix)
        for column, cell in enumerate(line)
        if row != column
    )
    section = page.source.split('id="confusion"')[1].split("</section>")[0]
    assert f">{commonest[0]}</td>" in section


def test_mistakes_are_pictures_with_true_class_predicted_class_confidence_and_key(
    tmp_path, evaluated
):
    evaluation, dataset = evaluated(5)
    page = report(tmp_path / "report.html", evaluation, dataset)
    section = page.source.split('id="mistakes"')[1].split("</section>")[0]
    assert section.count("data:image/png;base64,") == len(evaluation.mistakes) > 0
    first = evaluation.mistakes[0]
    for words in (first.key, first.label, first.predicted, f"{100 * first.confidence:.1f}%"):
        assert words in section


def test_examples_without_pictures_are_listed(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    bare = [dataclasses.replace(mistake, picture=None) for mistake in evaluation.mistakes]
    evaluation = dataclasses.replace(evaluation, mistakes=bare)
    page = report(tmp_path / "report.html", evaluation, dataset)
    section = page.source.split('id="mistakes"')[1].split("</section>")[0]
    assert "<img" not in section
    assert all(mistake.key in section for mistake in bare)


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


def test_a_run_that_left_nothing_behind_still_has_a_report(tmp_path, evaluated):
    evaluation, dataset = evaluated(2)
    nothing = {"training": {}, "history": [], "details": {}}
    page = report(tmp_path / "report.html", evaluation, dataset, **nothing)
    assert "The run left no history." in page.text
    assert "recipe" not in page.ids()


def test_a_single_epoch_is_told_in_figures(tmp_path, evaluated):
    evaluation, dataset = evaluated(2)
    training = {**TRAINING, "epochs": 1, "best_epoch": 1, "stopped": "no better loss in 1 epochs"}
    page = report(
        tmp_path / "report.html", evaluation, dataset, training=training, history=HISTORY[:1]
    )
    learning = page.source.split('id="learning"')[1].split("</section>")[0]
    assert "<svg" not in learning
    assert "Validation loss</dt><dd>1.1<" in learning
    assert "Training stopped early: no better loss in 1 epochs" in learning


def test_a_split_with_one_class_says_that_curves_are_undefined(tmp_path):
    names = ["here", "absent"]
    dataset = write_records(tmp_path / "r", names, [0, 0], np.full((2, 2), 9, np.uint8))
    evaluation = evaluate(write_model(tmp_path / "m", names), dataset.uri, progress=lambda _: None)
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert "Undefined: the split holds examples of a single class." in page.text
    assert "No example of absent" in page.text.replace(" :", ":")


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
