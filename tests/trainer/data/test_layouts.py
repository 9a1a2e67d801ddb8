"""Folders as people have them: splits under other names, a level too many, copies across splits."""

import re

import pytest

from tests.trainer.data.folders import records, write, write_pictures
from tests.trainer.data.test_source_errors import nothing_to_trust, refused


def keys(dataset):
    return {split: set(found) for split, found in records(dataset).items()}


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [
        ("training_set", "validation_set", "test_set"),
        ("Train", "val", "Testing"),
        ("train-set", "valid", "testset"),
    ],
)
def test_splits_under_other_names_are_kept(tmp_path, train, validation, test):
    for number, part in enumerate((train, validation, test)):
        write_pictures(tmp_path / "in" / part / "cats", 10, seed=2 * number)
        write_pictures(tmp_path / "in" / part / "dogs", 10, seed=2 * number + 1)
    dataset = write(tmp_path / "in", tmp_path / "out")
    assert dataset.classes == ["cats", "dogs"]
    for split, part in (("train", train), ("validation", validation), ("test", test)):
        found = keys(dataset)[split]
        assert len(found) == 20
        assert all(key.startswith(f"{part}/") for key in found)


@pytest.mark.parametrize(
    "folders",
    [
        ("single_prediction", "test_set/cats", "test_set/dogs", "training_set/cats"),
        ("archive/cats", "archive/dogs", "notes"),
        ("test/cats", "test/dogs", "val/cats", "val/dogs"),
    ],
)
def test_class_folders_of_folders_alone_are_refused(tmp_path, folders):
    for number, folder in enumerate(folders):
        write_pictures(tmp_path / "in" / folder, 5, seed=number)
    inner = folders[1].partition("/")[0]
    (tmp_path / "in" / inner / ".DS_Store").write_bytes(b"\0")
    message = refused(tmp_path / "in", tmp_path / "out")
    assert re.search(rf"has .*{inner}/.* for classes, but \w+/ holds only folders \(cats", message)
    assert "use <class>/<image>, or <split>/<class>/<image>" in message
    assert "training_set, test_set" in message
    assert nothing_to_trust(tmp_path / "out")
