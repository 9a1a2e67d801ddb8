"""The component that chooses the values to train with, after a search."""

from typing import NamedTuple

from kfp import dsl

from components.artifact_metadata import mark_as_html
from components.planning.search_options import TRIALS, SearchOptions
from components.typed import component
from trainer import quiet
from trainer.data import schema, storage
from trainer.evaluation.gate_options import GateOptions
from trainer.fields import build
from trainer.training.config import TrainingConfig, read_values


class Chosen(NamedTuple):
    """Outputs of choose_values."""

    values: dict  # of options of training; empty: the recipe's
    directory: str  # of the training that has already been done with them
    found: str  # whether the best trial is better, in one line


@component
def choose_values(
    records: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    trials: dsl.Output[dsl.Artifact],
    search_page: dsl.Output[dsl.HTML],
    config: TrainingConfig,
    options: GateOptions,
    search: dict,
    title: str,
) -> Chosen:
    """Choose the best trial of a search if it is better than the recipe's values beyond noise.

    Args:
        records: Records with the validation split.
        training: Directory of the training with the recipe's values, and of the trials.
        search: Options of the search.
        title: Title of the report.
    """
    # Imported here, so that compiling does not wait for TensorFlow.
    quiet.import_tensorflow()
    from trainer.evaluation import search_verdict
    from trainer.report.search_page import render_search

    asked = build(SearchOptions, search)
    verdict = search_verdict.judge_search(
        schema.load_dataset(records.uri),
        training.uri,
        storage.join(training.uri, TRIALS),
        metric=asked.metric,
        is_rising=asked.is_rising,
        confidence=options.confidence,
    )
    print(verdict.reason)
    search_page.uri += ".html"
    page = render_search(title, verdict, read_values(config, asked.parameters))
    storage.write_text(search_page.uri, page)
    mark_as_html(search_page.uri)
    content = {
        "metric": asked.metric,
        "reason": verdict.reason,
        "best": verdict.best.name,
        "chosen": verdict.chosen.name,
        "optimism": verdict.optimism,
        "p_value": verdict.comparison.p_value,
        "trials": [
            {
                "trial": trial.name,
                "values": trial.values,
                "value": trial.value if trial.is_finished else None,
                "epochs": len(trial.history),
            }
            for trial in (verdict.defaults, *verdict.trials)
        ],
    }
    storage.write_json(trials.uri, content)
    return Chosen(verdict.chosen.values, verdict.chosen.directory, verdict.reason)
