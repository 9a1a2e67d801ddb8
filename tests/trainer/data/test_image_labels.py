"""Images whose labels are in labels.csv: numbers, classes, several names; groups and splits."""

import shutil
import unicodedata

import pytest

from pipelines.local.preflight import check_local_sources
from pipelines.parameters import check_parameters
from tests.refusals import refused
from tests.tables import write_csv
from tests.trainer.data.picture_folders import (
    SIZE,
    picture,
    read_examples,
    rejected,
    two_classes,
    write,
    write_pictures,
)
from trainer.data.schema import SPLITS

NUMBER = {"column": "price", "type": "numeric"}
HALF = {"split_fractions": [0.5, 0.25, 0.25]}
OPEN = {"max_rejected_fraction": 1.0}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A hundred pictures in a folder more/, ten each of ten patients, and their labels."""
    folder = tmp_path_factory.mktemp("photos")
    write_pictures(folder / "more", 100)
    rows = [
        f"more/{n:03}.png,{n / 4},{'ab'[n % 2]},{'a;b' if n % 3 else ''},p{n // 10},"
        f"{'test' if n > 79 else 'train'},2024-01-{1 + n // 5:02}"
        for n in range(100)
    ]
    write_csv(folder / "labels.csv", rows, "file,price,kind,tags,patient,part,day")
    return folder


def labels(dataset, split="") -> dict[int, list]:
    """Return the labels of the pictures of a split, or of all, by their numbers."""
    splits = [split] if split else SPLITS
    return {
        int(example["key"][0][5:8]): example["label"]
        for one in splits
        for example in read_examples(dataset, one)
    }


def test_labels_are_numbers_classes_or_several_names(photos, tmp_path):
    numbers = write(photos, tmp_path / "numbers", label=NUMBER)
    assert labels(numbers) == {n: [n / 4] for n in range(100)}
    feature = numbers.feature("label")
    train = [value for (value,) in labels(numbers, "train").values()]
    assert (feature.dtype, feature.settings["column"]) == ("float32", "price")
    assert feature.statistics["mean"] == pytest.approx(sum(train) / len(train))
    assert numbers.classes == [] and numbers.splits["train"].class_counts == [len(train)]
    classes = write(photos, tmp_path / "classes", label={"column": "kind"})
    assert classes.classes == ["a", "b"]
    assert labels(classes) == {n: [n % 2] for n in range(100)}
    several = write(photos, tmp_path / "several", label={"column": "tags", "type": "multilabel"})
    assert several.classes == ["a", "b"] and several.feature("label").shape == [2]
    assert labels(several) == {n: [1, 1] if n % 3 else [0, 0] for n in range(100)}


@pytest.mark.parametrize(
    "split_by",
    [{"group": "patient"}, {"column": "part"}, {"time": "day"}, {"path": "more/[0-9]{2}"}],
)
def test_groups_are_in_one_split(photos, tmp_path, split_by):
    dataset = write(photos, tmp_path / "out", label=NUMBER, split_by=split_by, **HALF)
    numbers = {split: set(labels(dataset, split)) for split in SPLITS}
    if "column" in split_by:
        assert numbers == {
            "train": set(range(80)), "validation": set(), "test": set(range(80, 100)),
        }  # fmt: skip
    elif "time" in split_by:
        assert max(numbers["train"]) < min(numbers["validation"])
        assert max(numbers["validation"]) < min(numbers["test"]) == 75
    else:
        patients = {split: {n // 10 for n in of} for split, of in numbers.items()}
        assert sum(map(len, patients.values())) == 10 and patients["test"]
        assert patients["train"]


def test_groups_in_paths_of_class_folders(tmp_path):
    photos = two_classes(tmp_path / "in", 60)
    (photos / "cat" / "other.png").write_bytes((photos / "cat" / "001.png").read_bytes() + b"x")
    by_tens = {"split_by": {"path": "/0([0-9])"}, "max_rejected_fraction": 0.1, **HALF}
    dataset = write(photos, tmp_path / "out", **by_tens)
    tens = [
        {
            int(example["key"][0].rpartition(b"/")[2][:2])
            for example in read_examples(dataset, split)
        }
        for split in SPLITS
    ]
    assert sum(map(len, tens)) == 6
    reason = "no group: '/0([0-9])' does not match"
    assert rejected(tmp_path / "out") == {"cat/other.png": reason}
    split = {"train": photos, "test": two_classes(tmp_path / "more", 20, seed=5)}
    for name, folder in split.items():
        shutil.copytree(folder, tmp_path / "split" / name)
    message = refused(write, tmp_path / "split", tmp_path / "no", **by_tens)
    assert message.endswith("but the folder is already split; leave split_by out")


def test_rows_and_files_that_do_not_fit_are_rejected(tmp_path):
    write_pictures(tmp_path / "in", 12)
    rows = [f"{n:03}.png,{n}" for n in range(8)]
    rows += [
        "008.png,",
        "009.png,x",
        "009.png,1",
        "010.png,1",
        "010.png,1",
        "gone.png,3",
        ",4",
        "a",
    ]
    write_csv(tmp_path / "in" / "labels.csv", rows, "file,price")
    dataset = write(tmp_path / "in", tmp_path / "out", label=NUMBER, **OPEN)
    assert dataset.creation["accepted"] == 8
    assert rejected(tmp_path / "out") == {
        "008.png": "no label, price is missing",
        "009.png": "twice in labels.csv",
        "010.png": "twice in labels.csv",
        "011.png": "not in labels.csv",
        "labels.csv:15": "there is no such file: 'gone.png'",
        "labels.csv:16": "no file",
        "labels.csv:17": "row is ragged: 1 fields, the header has 2",
    }


def test_equal_photos_with_different_labels_are_named(tmp_path, capsys):
    write_pictures(tmp_path / "in", 40)
    picture(3).save(tmp_path / "in" / "same.png")
    rows = [f"{n:03}.png,{n}" for n in range(40)]
    write_csv(tmp_path / "in" / "labels.csv", [*rows, "same.png,7"], "file,price")
    dataset = write(tmp_path / "in", tmp_path / "out", label=NUMBER)
    assert dataset.creation["contradictions"] == {
        "count": 1, "first": [["003.png (3.0)", "same.png (7.0)"]],
    }  # fmt: skip


def test_store_writes_shards_again_whose_labels_changed(photos, tmp_path):
    options = {"label": NUMBER, "shard_megabytes": 0.01, "records_store": str(tmp_path / "store")}
    folder = shutil.copytree(photos, tmp_path / "in")
    write(folder, tmp_path / "1", **options)
    table = folder / "labels.csv"
    table.write_text(table.read_text().replace("more/050.png,12.5", "more/050.png,13"))
    changed = write(folder, tmp_path / "2", **options)
    assert labels(changed)[50] == [13.0]
    assert labels(changed) == {n: [n / 4 if n != 50 else 13.0] for n in range(100)}
    message = refused(write, folder, tmp_path / "3", **{**options, "label": {"column": "kind"}})
    assert message.endswith("list all classes in label")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": {"column": "cost", "type": "numeric"}}, "labels.csv has no column 'cost'"),
        ({"label": NUMBER, "split_by": {"group": "who"}}, "labels.csv has no column 'who'"),
        ({"label": NUMBER, "split_by": {"path": "("}}, "path='(' is not a regular expression"),
        ({"split_by": {"group": "patient"}}, "names a column of labels.csv, but label names none"),
        ({"label": {"column": "price"}}, "contains numbers, not classes: 100 different ones"),
        ({"label": {"column": "same"}}, "has only one value, 'x'"),
        (
            {"columns": [{"name": "a", "type": "numeric"}]},
            "has an effect only with a source of rows",
        ),
        ({}, "no folders of classes; to learn a column of its labels.csv, set label"),
    ],
)
def test_unusable_labels_are_refused(tmp_path, options, message):
    write_pictures(tmp_path / "in", 100)
    rows = [f"{n:03}.png,{n / 3},x" for n in range(100)]
    write_csv(tmp_path / "in" / "labels.csv", rows, "file,price,same")
    assert message in refused(write, tmp_path / "in", tmp_path / "out", **options)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_label_without_a_table_is_refused_before_a_run(tmp_path):
    photos = two_classes(tmp_path / "in", 4)
    message = refused(write, photos, tmp_path / "out", label=NUMBER)
    assert f"but {photos}/labels.csv does not exist" in message
    message = refused(check_parameters, {"source": "digits", "label": NUMBER}, origin="it")
    assert "dialect, label and split_by describe a table" in message
    accepted = {"source": f"images:{photos}", "label": NUMBER, "image_size": SIZE}
    check_parameters({**accepted, "loss": "huber", "floors": {"r2": 0.5}}, origin="it")


SPELLINGS = {
    "backslashes": lambda path: path.replace("/", "\\"),
    "a dot": "./{}".format,
    "a Windows path": lambda path: "C:\\photos\\" + path.replace("/", "\\"),
    "an absolute path": "/data/photos/{}".format,
    "a URI": "gs://my-bucket/photos/{}".format,
    "another case": str.upper,
    "the composed form": lambda path: unicodedata.normalize("NFC", path),
    "no suffix": lambda path: path.removesuffix(".png"),
    "the name": lambda path: path.rpartition("/")[2],
    "the name without suffix": lambda path: path.rpartition("/")[2].removesuffix(".png"),
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_rows_find_files_whose_paths_are_written_otherwise(tmp_path, spell):
    for number in range(40):
        folder = tmp_path / "in" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        name = unicodedata.normalize("NFD", f"prénom{number:02}.png")
        picture(number).save(folder / name)
        folder.joinpath(f"{number}.txt").touch()
    files = sorted((tmp_path / "in").rglob("*.png"))
    paths = {str(file.relative_to(tmp_path / "in")): float(file.stem[-2:]) for file in files}
    rows = [f"{spell(path)},{number}" for path, number in paths.items()]
    write_csv(tmp_path / "in" / "labels.csv", rows, "Image_Path,price")
    dataset = write(tmp_path / "in", tmp_path / "out", label=NUMBER)
    found = {
        example["key"][0].decode(): example["label"][0]
        for split in SPLITS
        for example in read_examples(dataset, split)
    }
    assert found == paths


def test_rows_that_may_mean_several_files_or_share_one_are_rejected(tmp_path):
    for folder in ("a", "b", "rest"):
        write_pictures(tmp_path / "in" / folder, 12, seed=ord(folder[0]))
    rows = [f"rest/{n:03}.png,{n}" for n in range(12)]
    rows += ["000.png,1", "A\\001.png,2", "./a/002.png,3", "/x/a/002.png,4", "./rest/003.png,5"]
    write_csv(tmp_path / "in" / "labels.csv", rows, "file,price")
    dataset = write(tmp_path / "in", tmp_path / "out", label=NUMBER, **OPEN)
    assert dataset.creation["accepted"] == 13
    reasons = rejected(tmp_path / "out")
    assert reasons["labels.csv:14"] == (
        "its file is ambiguous: '000.png' may be 'rest/000.png' or 'a/000.png'"
    )
    assert reasons["a/002.png"] == "twice in labels.csv"
    assert reasons["labels.csv:18"] == "another row has the same file: 'rest/003.png'"
    assert "a/001.png" not in reasons and reasons["a/000.png"] == "not in labels.csv"


@pytest.mark.parametrize(
    "label", [NUMBER, {"column": "price"}, {"column": "price", "type": "multilabel"}]
)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [f"x/{n}.jpg,{n}" for n in range(30)],
            "0 of 30 rows of labels.csv match one of 30 images: column 'file' has 'x/0.jpg', "
            "'x/1.jpg', 'x/2.jpg', the folder '000.png', '001.png', '002.png'; write",
        ),
        ([], "labels.csv has no row with a file; add rows"),
        ([f"{n:03}.png" for n in range(30)], "labels.csv has no row with a file; add rows"),
    ],
)
def test_a_table_for_other_images_is_refused_before_a_run(tmp_path, label, rows, message):
    write_pictures(tmp_path / "in", 30)
    write_csv(tmp_path / "in" / "labels.csv", rows, "file,price")
    source = f"images:{tmp_path / 'in'}"
    assert message in refused(write, tmp_path / "in", tmp_path / "out", label=label, **OPEN)
    parameters = check_parameters({"source": source, "label": label}, origin="it")
    assert message in refused(check_local_sources, parameters)


@pytest.mark.parametrize("kind", ["numeric", "multilabel", "classes"])
def test_a_table_without_a_usable_label_is_refused(tmp_path, kind):
    write_pictures(tmp_path / "in", 10)
    rows = [f"{n:03}.png,{'?' if kind == 'multilabel' else ''}" for n in range(10)]
    write_csv(tmp_path / "in" / "labels.csv", rows, "file,price")
    label = {"column": "price", "type": kind}
    if kind != "numeric":
        label["classes"] = ["a", "b"]
    if kind == "classes":
        del label["type"]
    message = refused(write, tmp_path / "in", tmp_path / "out", label=label, **OPEN)
    assert "has no usable images; 000.png, 001.png" in message


def test_column_of_the_files_may_have_another_name(tmp_path):
    write_pictures(tmp_path / "in", 30)
    rows = [f"{n},{n:03},{n}" for n in range(30)]
    write_csv(tmp_path / "in" / "labels.csv", rows, "id,image_id,price")
    dataset = write(tmp_path / "in", tmp_path / "out", label=NUMBER)
    assert dataset.creation["accepted"] == 30
    write_csv(tmp_path / "in" / "labels.csv", rows, "no,what,price")
    message = refused(write, tmp_path / "in", tmp_path / "other", label=NUMBER)
    assert "labels.csv has no column 'file' with each image's path in the folder" in message
    assert message.endswith("only no, what, price; rename the one that has them")
