"""Checkpoints that are damaged or incomplete are skipped."""

from pathlib import Path

import pytest
import tensorflow as tf

from trainer.training import checkpoint


def save_two(folder: Path) -> list[str]:
    content = tf.train.Checkpoint(value=tf.Variable(tf.range(99.0)))
    manager = tf.train.CheckpointManager(content, str(folder), max_to_keep=2)
    return [manager.save(), manager.save()]


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_checkpoint_with_a_damaged_index_is_skipped(tmp_path, kept):
    first, second = save_two(tmp_path)
    index = Path(f"{second}.index")
    data = index.read_bytes()
    index.write_bytes(data[: int(kept * len(data))] + b"damage")
    checkpoint.repair_lists(str(tmp_path))
    assert checkpoint.list_checkpoints(str(tmp_path)) == [first]
    (tmp_path / "checkpoint").write_bytes(b"\xff")
    assert checkpoint.list_checkpoints(str(tmp_path)) == []
    with pytest.raises(RuntimeError, match="can't be read; start the job again"):
        checkpoint.read_progress(str(tmp_path))


@pytest.mark.parametrize("folder", ["", "best"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: b"\xff" + text,
        lambda text: text[:30],
        lambda text: text.replace(b"ckpt-2", b"ckpt-7", 1),
        lambda text: text.replace(b"ckpt", b"\\xff", 1),
    ],
)
def test_damaged_list_is_rebuilt_from_the_files(tmp_path, capfd, folder, damage):
    saved = save_two(tmp_path / folder)
    names = tmp_path / folder / "checkpoint"
    names.write_bytes(damage(names.read_bytes()))
    checkpoint.repair_lists(str(tmp_path))
    assert checkpoint.list_checkpoints(str(tmp_path / folder)) == saved
    assert tf.train.latest_checkpoint(tmp_path / folder) == saved[-1]
    expected = f"{names} does not name the newest checkpoint; resuming from {saved[-1]}\n"
    assert capfd.readouterr().out == expected


def test_checkpoint_is_listed_once_complete_and_may_vanish(tmp_path):
    variable = tf.keras.Variable([1.0, 2.0])
    directory = str(tmp_path)
    assert checkpoint.list_checkpoints(directory) == []
    content = tf.train.Checkpoint(variables=[variable.value])
    # The chief writes the data first and then the index, and the list of checkpoints last.
    content.write(f"{directory}/ckpt-1")
    assert checkpoint.list_checkpoints(directory) == []
    text = 'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n'
    (tmp_path / "checkpoint").write_text(text[:40])
    assert checkpoint.list_checkpoints(directory) == []
    (tmp_path / "checkpoint").write_text(text)
    (path,) = checkpoint.list_checkpoints(directory)
    data = next(tmp_path.glob("ckpt-1.data-*"))
    for damage in (data.unlink, lambda: data.write_bytes(b"")):
        damage()
        assert checkpoint.load(path, [variable]) is None
