"""Options of the pipeline itself."""

import dataclasses

from trainer.fields import option
from trainer.machines.scheduling import SCHEDULING_STRATEGIES


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """Options by which the pipeline plans a training job and evaluates its model."""

    skip_if_unchanged: bool = option(
        False,
        help="Skip training where a version of model_name was trained on equal records with an "
        "equal configuration. For scheduled runs.",
    )
    max_drift: float = option(
        0.0,
        help="Largest population stability index of a column, or of the classes, from the "
        "training data of model_name's champion to the run's own, such as 0.25: with more the run "
        "ends before it trains; 0: no limit.",
        minimum=0,
    )
    min_drift: float = option(
        0.0,
        help="Skip training where no column, nor the classes, have drifted that far since "
        "model_name's champion. For scheduled runs; 0: training depends on no drift.",
        minimum=0,
    )
    resume_from: str = option(
        "",
        help="base_output_directory of an interrupted training job of equal records and "
        "configuration, whose checkpoint training continues from; empty: training starts from "
        "scratch.",
    )
    deploy_champion: bool = option(
        False,
        help="Deploy a new champion to the endpoint of model_name, with all of its traffic, once "
        "it has answered test records there as in the evaluation. It is billed until undeployed.",
    )
    slice_columns: list[str] = option(
        [],
        help="Columns of a table by whose values the test split is cut into slices, each with "
        "metrics of its own, as a JSON list; empty: columns of few or of ranked values.",
    )
    scheduling_strategy: str = option(
        "STANDARD",
        help="Strategy by which Vertex AI provides the training job's machines.",
        choices=SCHEDULING_STRATEGIES,
    )
    max_cost: float = option(
        0.0,
        help="Largest cost of the training job's machines, in US dollars: timeout is shortened to "
        "fit, at the price of machines on demand; 0: no limit.",
        minimum=0,
    )
    price_per_hour: float = option(
        0.0,
        help="Price of the training job's machines for max_cost, in US dollars an hour; 0: from "
        "the price table, which is of us-central1.",
        minimum=0,
    )
