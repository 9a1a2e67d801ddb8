"""What is judged, and fetched, once there are records and before a machine costs anything."""

from trainer.config import (
    TrainingConfig,
    check_batch_size,
    check_for_parameter_servers,
    check_padding,
)
from trainer.dataset.schema import load_to_train
from trainer.models import check_model, prepare_model
from trainer.worker_pools import MachineOptions, check_strategy


def check_together(config: TrainingConfig, machines: MachineOptions) -> None:
    """Raises InputError where these machines can't train with this config."""
    check_strategy(config.strategy, machines)
    check_batch_size(config.batch_size, machines.batch_shares)
    if machines.ps_count:
        check_for_parameter_servers(config)


def prepare(
    config: TrainingConfig, machines: MachineOptions, dataset_uri: str, directory: str
) -> None:
    """Makes sure that a job can train, and leaves in `directory` what its replicas share.

    Says in one line where a batch is larger than the training split.

    Args:
        dataset_uri: folder of the records.
        directory: the job's base_output_directory.

    Raises:
        InputError: the records, the model or its weights can't be trained with.
    """
    dataset = load_to_train(dataset_uri)
    check_model(config.model, dataset, config.model_options)
    # A parameter server's worker reads on from the start where a batch is not full.
    if not machines.ps_count:
        examples = dataset.splits["train"].examples
        warning = check_padding(config, examples, machines.batch_shares)
        if warning:
            print(f"warning: {warning}", flush=True)
    prepare_model(config.model, dataset, config.model_options, directory)
