"""Equal weights are exported as equal bytes, whatever the process has traced before."""

import keras
import pytest
import tensorflow as tf

from trainer.exported.export import export
from trainer.models import open_model_for


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("model", "records", "options"),
    [
        ("small_cnn", "digit_records", {}),
        ("wide_and_deep", "row_records", {"hidden_units": [8, 8]}),
    ],
)
def test_equal_weights_are_exported_as_equal_bytes(tmp_path, request, model, records, options):
    dataset = request.getfixturevalue(records)
    for number in range(2):
        for _ in range(number):
            tf.function(lambda x: x + 1)(tf.constant(1.0))
        keras.utils.clear_session()
        keras.utils.set_random_seed(7)
        network = open_model_for(model, dataset, options).build(dataset)
        export(network, dataset, str(tmp_path / str(number)))
    first, second = files_of(tmp_path / "0"), files_of(tmp_path / "1")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
