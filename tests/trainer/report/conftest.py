import numpy as np
import pytest

from tests.trainer.report.document import HOSTILE
from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation.scoring import evaluate


@pytest.fixture(scope="session")
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
            built[case] = evaluate(model, dataset.uri), dataset
        return built[case]

    return judge
