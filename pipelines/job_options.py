"""Options of the training job that the pipeline hands on as they are."""

import dataclasses
import re

from pipelines import resource_names
from trainer.errors import InputError
from trainer.fields import option

_DURATION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Arguments of CustomTrainingJobOp that are passed on under its own names."""

    # A day, not Vertex AI's week: a job that hangs is billed until this ends it.
    timeout: str = option("86400s", help="The job's longest running time, in seconds: '3600s'.")
    max_wait_duration: str = option(
        "86400s", help="With FLEX_START: the longest wait for machines, in seconds; '0s': forever."
    )
    # The survivors of synchronous training can't go on with a restarted peer.
    restart_job_on_worker_restart: bool = option(
        True, help="Restart the whole job, from its checkpoint, when a replica restarts."
    )
    service_account: str = option(
        "",
        help="Account that replicas run as; empty: Vertex AI's custom code service agent. Workers "
        "of Dataflow run as it too; empty: Compute Engine's default account.",
    )
    network: str = option(
        "", help="Network to peer with: projects/NUMBER/global/networks/NAME; empty: none."
    )
    tensorboard: str = option(
        "",
        help="Vertex AI TensorBoard to stream logs to: projects/…/tensorboards/ID; needs a "
        "service_account; empty: none.",
    )
    enable_web_access: bool = option(False, help="Allow a shell in running replicas.")
    labels: dict = option({}, help="Labels of the job, as a JSON object of text.")
    encryption_spec_key_name: str = option(
        "",
        help="Cloud KMS key that protects the job: projects/…/locations/…/keyRings/…/cryptoKeys/"
        "KEY, in the run's region; empty: Google's.",
    )

    def __post_init__(self) -> None:
        for name in ("timeout", "max_wait_duration"):
            value = getattr(self, name)
            if not _DURATION.fullmatch(value):
                raise InputError(f"{name}={value!r} is not a duration in seconds, such as '3600s'")
        if not float(self.timeout.removesuffix("s")):
            raise InputError(f"timeout={self.timeout!r} leaves no time to train; use more")
        for name in ("service_account", "network", "tensorboard", "encryption_spec_key_name"):
            resource_names.check(name, getattr(self, name))
        resource_names.check_tensorboard(self.tensorboard, self.service_account)
        for key, value in self.labels.items():
            for text, form in ((key, _LABEL_KEY), (value, _LABEL_VALUE)):
                if not isinstance(text, str) or not form.fullmatch(text):
                    start = ", starting with a letter" if form is _LABEL_KEY else ""
                    raise InputError(
                        f"labels: {text!r} is not up to 63 of a-z, 0-9, - and _{start}; use "
                        '{"team": "vision"}, for example'
                    )
