"""docs/running-here.md as it is written."""

import re

import matplotlib.image
import numpy as np

from tests.child_processes import ROOT

PAGE = ROOT / "docs" / "running-here.md"


def test_lines_of_the_page_predict(trained, tmp_path, monkeypatch, capsys):
    (lines,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    place = tmp_path / re.findall(r'"(runs/.*)/model"', lines)[0]
    place.parent.mkdir(parents=True)
    place.symlink_to(trained)
    matplotlib.image.imsave(tmp_path / "photo.png", np.eye(8))
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    shown = capsys.readouterr().out
    assert "'label': <tf.Tensor: shape=(1,), dtype=string" in shown
    assert "'probabilities': <tf.Tensor: shape=(1, 10), dtype=float32" in shown
