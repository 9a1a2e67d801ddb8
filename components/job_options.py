"""Options of the training job that the pipeline passes on unchanged."""

import dataclasses

from trainer.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Arguments of CustomTrainingJobOp, with the same names."""

    # A day instead of Vertex AI's week: a job that hangs is billed until the timeout.
    timeout: str = option(
        "86400s", help="Longest running time of the training job, in seconds: '3600s'."
    )
    max_wait_duration: str = option(
        "86400s",
        help="Longest wait for machines, in seconds, with scheduling_strategy=FLEX_START; '0s': no "
        "limit.",
    )
    # Other replicas can wait for a restarted one (trainer/training/rejoin.py). Restarting all
    # takes minutes longer, but does not depend on their noticing that one was lost.
    restart_job_on_worker_restart: bool = option(
        True,
        help="Restart the whole training job, from its checkpoint, when a replica restarts.",
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
