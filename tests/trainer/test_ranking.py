"""Areas and curves by one sort equal those of scikit-learn, ties included."""

import numpy as np
import pytest
from sklearn import metrics

from trainer.evaluation.ranking import rank


@pytest.mark.parametrize("levels", [3, 1000])
def test_areas_and_curves_are_those_of_scikit_learn(levels):
    random = np.random.default_rng(levels)
    labels = random.integers(0, 6, 400)
    labels[labels == 5] = 4  # A class without an example.
    scores = random.integers(1, levels, (400, 6)).astype(np.float32)
    scores[np.arange(400), labels] += levels // 3
    rankings = rank(labels, scores)
    grid = np.linspace(0, 1, 57)
    for index, ranking in enumerate(rankings[:5]):
        positive, score = labels == index, scores[:, index]
        assert ranking.roc_auc == pytest.approx(metrics.roc_auc_score(positive, score))
        expected = metrics.average_precision_score(positive, score)
        assert ranking.average_precision == pytest.approx(expected)
        fpr, tpr, _ = metrics.roc_curve(positive, score)
        np.testing.assert_allclose(np.interp(grid, *ranking.roc), np.interp(grid, fpr, tpr))
    assert rankings[5].total_positives == 0
