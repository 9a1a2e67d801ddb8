"""Steps of replicas, tried with the first rows of the data where these may not add up."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras

from trainer.engine.batch_rows import count_rows
from trainer.engine.compile_checks import has_steps_of_keras, is_own_metric, list_metrics
from trainer.engine.gathered_losses import squares_as_losses
from trainer.engine.metric_states import MetricStates
from trainer.engine.scales import Scales
from trainer.engine.step import Step
from trainer.engine.step_trial import find_scales, is_trial_needed, trained_for_long
from vertex.errors import InputError


def make_step(
    model: keras.Model,
    function: Callable[[Any], dict[str, Any]],
    states: MetricStates,
    read_rows: Callable[[], Any],
    *,
    written: keras.Model | None = None,
    is_plain: bool,
    carry_states: bool = False,
    gather_batch: bool = False,
    **options: Any,
) -> tuple[Step, bool]:
    """Return a step, and whether it still has to be tried, with a batch of several rows.

    Raise InputError for a step that several replicas can't compute.

    Args:
        read_rows: returns the first rows of the data, a batch.
        written: the user's own part of the model; by default, all of it.
        options: others of `Step`, as are all that are not listed here.
    """
    several = model.distribute_strategy.num_replicas_in_sync > 1
    gathers = several and gather_batch
    if gathers and not has_steps_of_keras(model):
        raise InputError(
            "gather_batch=True can't be used with the train_step, test_step or compute_metrics of "
            f"the model {model.name!r}; let Keras' own call its compute_loss"
        )
    adds_own = not carry_states and any(map(is_own_metric, list_metrics(written or model)))
    scales, is_untried = Scales(), False
    if gathers or ((several or adds_own) and is_trial_needed(written or model)):
        rows = read_rows()
        is_untried = int(count_rows(rows)) == 1
        if not is_untried:
            squared = squares_as_losses(model) if gathers else contextlib.nullcontext()
            with trained_for_long(model), squared:
                scales = find_scales(model, function, states, rows, is_plain=is_plain)
        if gathers:  # The values of the loss are those of all rows.
            scales.values = []
    step = Step(
        model,
        function,
        states,
        scales,
        is_plain=is_plain,
        carry_states=carry_states,
        gather_batch=gathers,
        **options,
    )
    return step, is_untried
