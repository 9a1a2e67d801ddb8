"""Odd files get the pixels of their records from every server of a model, and by each command."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.odd_images import FORMS, odd_images
from tests.pipelines.emulator.test_batch_predictions import written
from tests.pipelines.test_serving_commands import register
from tests.trainer.serving.served_pixels import (
    export_revealing,
    rejections,
    revealed,
    stored_pixels,
    write_records,
)
from tests.trainer.serving.serving_processes import b64, serve

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_predict_reads_every_format_that_records_have(tmp_path, succeed, refused):
    forms = (
        "JPEG with orientation 6",
        "PNG in mode RGBA",
        "WebP",
        "TIFF by tiff_lzw",
        "BMP of 4 bits",
    )
    files = {name: file for name, file in odd_images(len(FORMS)).items() if name[5:-4] in forms}
    dataset = write_records(files, tmp_path)
    register(tmp_path, "digits", export_revealing(dataset, str(tmp_path / "model")))
    suffixes = ("jpe", "png", "webp", "tiff", "bmp")
    for name, suffix in zip(files, suffixes, strict=True):
        Path(f"a.{suffix}").write_bytes(files[name])
    lines = succeed("predict --json digits", *(f"a.{suffix}" for suffix in suffixes)).splitlines()
    answers = revealed([json.loads(line)["probabilities"] for line in lines])
    np.testing.assert_array_equal(answers, [stored_pixels(dataset)[name] for name in files])
    Path("a.tif").write_bytes(b"text")
    assert "a.tif can't be read: not a JPEG, PNG, BMP, GIF, WEBP or" in refused(
        "predict digits a.tif"
    )
    assert "files that end in .jpg, .jpeg" in refused("predict digits a.heic")


@pytest.mark.slow
def test_1000_odd_files_have_equal_pixels_everywhere(tmp_path, command, succeed):
    files = odd_images(1000)
    dataset = write_records(files, tmp_path, encoding="jpeg", image_size=16)
    pixels, reasons = stored_pixels(dataset), rejections(dataset)
    assert len(pixels) + len(reasons) == 1000 and len(pixels) > 900
    uri = export_revealing(dataset, str(tmp_path / "model"))
    register(tmp_path, "digits", uri)
    folder, expected = tmp_path / "in" / "odd", [*pixels.values()]
    with serve(uri) as server:
        answers = []
        for name in pixels:
            status, content = server.ask([b64(files[name])])
            assert status == 200, (name, content)
            answers.append(content["predictions"][0]["probabilities"])
        np.testing.assert_array_equal(revealed(answers), expected)
        for name, reason in reasons.items():
            status, content = server.ask([b64(files[name])])
            assert status == 400
            assert content["instances"][0]["error"] == f"can't be read: {reason}"
    lines = succeed("predict --json digits", *(str(folder / name) for name in pixels)).splitlines()
    answers = [json.loads(line)["probabilities"] for line in lines]
    np.testing.assert_array_equal(revealed(answers), expected)
    Path("files.txt").write_text("\n".join(str(folder / name) for name in pixels))
    code, shown, errors = command("run digits --local --batch files.txt --set=output=answers")
    assert (code, errors) == (0, ""), shown
    results = {
        Path(result["instance"]).name: result["prediction"]["probabilities"]
        for result in written(Path("answers"), "results")
    }
    np.testing.assert_array_equal(revealed([results[name] for name in pixels]), expected)
