"""A recipe's tables on its runs, beside the pipeline's parameters."""

import pytest

from pipelines import recipe
from pipelines.run_options import time_of
from trainer.errors import InputError


def load(folder, text):
    (folder / "mine.toml").write_text(f'source = "digits"\n{text}')
    return recipe.load("mine", folder)


def test_a_recipe_tells_its_time_its_fallbacks_and_its_schedule(tmp_path):
    loaded = load(
        tmp_path,
        """
epochs = 3
schedule = "cosine"
expected_minutes = 12
[[fallbacks]]
chief_machine_type = "n1-standard-8"
[[fallbacks]]
scheduling_strategy = "SPOT"
[retraining]
cron = "*/90  3-4,5 * * MON-FRI"
time_zone = "Europe/Berlin"
start = 2031-01-01
parameters = {epochs = 5}
""",
    )
    assert loaded.parameters.training.epochs == 3
    assert loaded.parameters.training.schedule == "cosine"
    run_options = loaded.run_options
    assert run_options.expected_minutes == 12
    assert run_options.fallbacks == [
        {"chief_machine_type": "n1-standard-8"},
        {"scheduling_strategy": "SPOT"},
    ]
    retraining = run_options.retraining
    assert (retraining.cron, retraining.time_zone) == ("*/90  3-4,5 * * MON-FRI", "Europe/Berlin")
    assert time_of(retraining.start).isoformat() == "2031-01-01T00:00:00+00:00"
    assert time_of(retraining.end) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expected_minutes = -1", "mine.toml: expected_minutes=-1.0 is out of range"),
        ("[step_machines]\nrecords = 3", "[step_machines]: records=3 is not a JSON object, such"),
        (
            "[step_machines]\nrecord = {cpus = 8}",
            "mine.toml: [step_machines]: unknown parameter 'record'; did you mean 'records'?",
        ),
        (
            "[step_machines]\nrecords = {cpus = 97}",
            "mine.toml: [step_machines.records]: cpus=97 is out of range: it must be at most 96",
        ),
        (
            "[step_machines]\nevaluation = {memory_gb = 625}",
            "[step_machines.evaluation]: memory_gb=625 is out of range: it must be at most 624",
        ),
        (
            '[step_machines]\nevaluation = {accelerator_type = "NVIDIA_H100_80GB"}',
            "[step_machines.evaluation]: accelerator_type='NVIDIA_H100_80GB' is not one of '', ",
        ),
        ("[serving]\nmin_replicas = 0", "mine.toml: [serving]: min_replicas=0 is out of range"),
        ("[serving]\nmachine_type = 'n4-standard-8'", "is not a machine type of prediction"),
        ('notify = ["team"]', "mine.toml: notify: 'team' is not an e-mail address, such as team"),
        (f"notify = {['a@b.de'] * 4}", "notify names 4 addresses, but Vertex AI writes to 3 at"),
        (
            'expected_minutes = "12"',
            'mine.toml: expected_minutes = "12" is text; give a number, without quotes',
        ),
        (
            "[retraining]\ncron = '* * * * *'\nmax_runs = '3'",
            'mine.toml: [retraining]: max_runs = "3" is text; give a whole number, without quotes',
        ),
        (
            "[retraining]\ncron = '* * * * *'\nallow_queueing = 1",
            "mine.toml: [retraining]: allow_queueing = 1 is not a boolean; give true or false",
        ),
        ("[serving]\nmax_replicas = '2'", '[serving]: max_replicas = "2" is text; give a whole n'),
        (
            'model_options = {units = "8"}',
            'mine.toml: model_options: units = "8" is text; give a whole number, without quotes',
        ),
        (
            'model = "flowers_cnn"\nimage_size = 4',
            "mine.toml: image_size=4 is too small for 3 poolings",
        ),
        ("[[fallbacks]]\nepochs = 3", "mine.toml: fallbacks[1]: 'epochs' is not a parameter of"),
        (
            '[[fallbacks]]\naccelerator_type = "NVIDIA_L4"',
            "mine.toml: fallbacks[1]: accelerator_type='NVIDIA_L4' with accelerator_count=0",
        ),
        ("[retraining]\ntime_zone = 'UTC'", "mine.toml: [retraining]: cron='' is not five"),
        (
            "[retraining]\ncron = '0 24 * * *'",
            "cron='0 24 * * *': 24 is out of range for the hour; give 0",
        ),
        (
            "[retraining]\ncron = '* * * * MON,8'",
            "8 is out of range for the day of the week; give 0 to 7",
        ),
        ("epochs = 3\nepochs = 4", "mine.toml can't be read: Cannot overwrite a value"),
        ("epochs: 3", "mine.toml can't be read: "),
        (
            f"seed = {2**53 + 2}",
            "mine.toml: seed=9007199254740994 is out of range: it must be at m",
        ),
        ("[retraining]\ncron = '* * * * *'\nend = 'soon'", "[retraining]: end='soon' is not a"),
        (
            "[retraining]\ncron = '* * * * *'\nparameters = {epoch = 3}",
            "mine.toml: [retraining] parameters: unknown parameter 'epoch'; did you mean 'epochs'?",
        ),
    ],
)
def test_a_bad_value_is_refused_with_its_place(tmp_path, text, message):
    with pytest.raises(InputError) as raised:
        load(tmp_path, text)
    assert message in str(raised.value)
