"""Evaluation of a model: predictions, scores, comparison with the champion, gate and drift."""
