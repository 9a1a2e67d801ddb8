"""The phases of a run: one, or two where a backbone is fine-tuned after its head."""

import dataclasses

from trainer.config import TrainingConfig
from trainer.models import model_class
from trainer.training.progress import Progress


def phases(config: TrainingConfig) -> list[TrainingConfig]:
    """Return the config of each phase in turn: `config` with the phase's own values in place."""
    if not config.fine_tune_epochs or not model_class(config.model).has_backbone:
        return [config]
    second = dataclasses.replace(
        config,
        epochs=config.fine_tune_epochs,
        learning_rate=config.fine_tune_learning_rate,
        plateau_patience=config.fine_tune_plateau_patience,
        early_stopping_patience=config.fine_tune_early_stopping_patience,
    )
    return [config, second]


def expected_epochs(config: TrainingConfig, progress: Progress) -> int:
    """Epochs of the whole run, should no phase from now on stop early."""
    return progress.phase_start + sum(phase.epochs for phase in phases(config)[progress.phase :])
