"""docs/running-here.md as it is written."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "running-here.md"


def test_a_model_is_asked_by_the_lines_of_the_page(trained, tmp_path):
    (lines,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    place = tmp_path / re.findall(r'"(runs/.*)/model"', lines)[0]
    place.parent.mkdir(parents=True)
    place.symlink_to(trained)
    matplotlib.image.imsave(tmp_path / "photo.png", np.eye(8))
    result = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "'label': <tf.Tensor: shape=(1,), dtype=string" in result.stdout
    assert "'probabilities': <tf.Tensor: shape=(1, 10), dtype=float32" in result.stdout
