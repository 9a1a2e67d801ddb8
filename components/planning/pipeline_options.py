"""Options of the pipeline, of the registration, and of the training job, passed on unchanged."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.conditions import given, when
from trainer.fields import option
from vertex.errors import InputError
from vertex.facts.jobs import SCHEDULING_STRATEGIES
from vertex.facts.resource_names import is_prebuilt
from vertex.machines.price_table import JobCost

# A model's name starts with a letter, although its ID need not.
# https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/general/resource-naming
_REGISTERED = given("model_name")
_MODEL_ID = re.compile(r"([a-z][a-z0-9_-]{0,62})?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """Options for planning a training job and evaluating its model."""

    skip_if_unchanged: bool = option(
        False,
        help="Skip training if a version of model_name was trained on equal records with an "
        "equal configuration. For scheduled runs.",
        applies=_REGISTERED,
    )
    max_drift: float = option(
        0.0,
        help="Largest drift (population stability index) of a column or of the classes since the "
        "training data of model_name's champion. Guards against broken sources: a run with more "
        "drift fails before training, as does each later one; 0: no limit.",
        minimum=0,
        applies=_REGISTERED,
    )
    min_drift: float = option(
        0.0,
        help="Train only if the drift (population stability index) of a column or of the classes "
        "since the training data of model_name's champion exceeds this, such as 0.1. For "
        "scheduled runs; 0: train regardless of drift.",
        minimum=0,
        applies=_REGISTERED,
    )
    resume_from: str = option(
        "",
        help="base_output_directory of an interrupted training job with equal records and "
        "configuration; training continues from its checkpoint; empty: start from scratch.",
    )
    deploy_champion: bool = option(
        False,
        help="Deploy a new champion to the endpoint of model_name, with all of the traffic, after "
        "a check of its predictions on test records. It is billed until undeployed.",
        applies=(_REGISTERED, when("register", True)),
    )
    scheduling_strategy: str = option(
        "STANDARD",
        help="Vertex AI's strategy for providing the training job's machines.",
        choices=SCHEDULING_STRATEGIES,
    )
    max_cost: float = option(
        0.0,
        help="Largest cost of the training job's machines, in US dollars: timeout is shortened to "
        "fit it at on-demand prices; 0: no limit.",
        minimum=0,
    )
    price_per_hour: float = option(
        0.0,
        help="Price of the training job's machines for max_cost, in US dollars an hour; 0: that "
        "of the price table.",
        minimum=0,
    )

    def __post_init__(self) -> None:
        if self.max_drift and self.min_drift >= self.max_drift:
            raise InputError(
                f"min_drift={self.min_drift:g} is not below max_drift={self.max_drift:g}, so "
                "no run would train; lower min_drift, or raise max_drift"
            )

    def cost_of(self, pools: Sequence[Mapping[str, Any]], rates: Mapping[str, float]) -> JobCost:
        """Return the cost of a training job with these worker pools, at hourly prices by name."""
        return JobCost(
            pools=pools, rates=rates, price_per_hour=self.price_per_hour, max_cost=self.max_cost
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegistryOptions:
    """Options of the registration of an accepted model."""

    model_name: str = option(
        "",
        help="Model in the Model Registry to which accepted models are added as versions, and "
        "whose champion they must beat; empty: nothing is registered. A recipe's default is its "
        "name.",
    )
    register: bool = option(
        True,
        help="Register the model as the gate decides. If false, the model is compared with the "
        "champion of model_name, and nothing is registered.",
    )
    serving_image: str = option(
        "",
        help="Container image that serves registered versions of the model; empty: the setting "
        "serving_image, which a run on Vertex AI that registers models needs.",
    )

    @property
    def registers(self) -> bool:
        """Return whether a run can register its model."""
        return self.register and bool(self.model_name)

    def __post_init__(self) -> None:
        if not _MODEL_ID.fullmatch(self.model_name):
            raise InputError(
                f"model_name={self.model_name!r}: names may have up to 63 characters: a-z, 0-9, -, "
                "_, the first a letter"
            )
        if is_prebuilt(self.serving_image) and not self.serving_image.endswith(":latest"):
            raise InputError(
                f"serving_image={self.serving_image!r}: Vertex AI takes its own images only by the "
                "tag latest; end it with ':latest'"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Arguments of CustomTrainingJobOp, with the same names."""

    # A day instead of Vertex AI's week: a job that hangs is billed until the timeout.
    timeout: str = option(
        "86400s", help="Longest running time of the training job, in seconds: '3600s'."
    )
    max_wait_duration: str = option(
        "86400s",
        help="Longest wait for machines, in seconds; '0s': no limit.",
        applies=when("scheduling_strategy", "FLEX_START"),
    )
    # Other replicas can wait for a restarted one (trainer/engine/rejoin.py). Restarting all
    # takes minutes longer, but does not depend on their noticing that one was lost.
    restart_job_on_worker_restart: bool = option(
        True, help="Restart the whole training job, from its checkpoint, when a replica restarts."
    )
    service_account: str = option(
        "",
        help="Service account of replicas and of Dataflow's workers; empty: Vertex AI's custom "
        "code service agent for replicas, Compute Engine's default account for Dataflow.",
    )
    network: str = option(
        "",
        help="VPC network to peer the training job with, and network of Dataflow's workers: "
        "projects/NUMBER/global/networks/NAME; empty: none.",
    )
    tensorboard: str = option(
        "",
        help="Vertex AI TensorBoard that training logs are streamed to, which needs a "
        "service_account: projects/…/tensorboards/ID; empty: none.",
    )
    enable_web_access: bool = option(False, help="Allow a shell in the replicas of a running job.")
    labels: dict = option({}, help="Labels of the training job, as a JSON object of text.")
    encryption_spec_key_name: str = option(
        "",
        help="Cloud KMS key in the run's region that encrypts the training job, Dataflow's and "
        "the registered model: "
        "projects/…/locations/…/keyRings/…/cryptoKeys/KEY; empty: a Google-managed key.",
    )

    def build_scheduling(self, strategy: str) -> dict[str, Any]:
        """Return the Scheduling of a job; only FLEX_START may have a max_wait_duration.

        The launcher of CustomTrainingJobOp removes it for other strategies; that of a
        HyperparameterTuningJob sends what it is given.
        """
        scheduling = {
            "timeout": self.timeout,
            "restart_job_on_worker_restart": self.restart_job_on_worker_restart,
            "strategy": strategy,
        }
        if strategy == "FLEX_START":
            scheduling["max_wait_duration"] = self.max_wait_duration
        return scheduling
