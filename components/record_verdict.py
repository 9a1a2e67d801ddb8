"""The gate's decision, kept."""

from typing import NamedTuple

from kfp import dsl

from trainer.worker_pools import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def record_verdict(
    model: dsl.Input[dsl.Model],
    decision: dsl.Output[dsl.Artifact],
    accepted: bool,
    accuracy: float,
    min_accuracy: float,
) -> NamedTuple("Recorded", [("verdict", str)]):  # type: ignore[valid-type]
    """Records whether a model passed the gate, and by which figures.

    Args:
        model: Model that was judged.
        accepted: Whether it passed.
        accuracy: Its accuracy on the test split.
        min_accuracy: The least that would pass.
    """
    import json
    import pathlib

    verdict = "accepted" if accepted else "rejected"
    figures = {"verdict": verdict, "accuracy": accuracy, "min_accuracy": min_accuracy}
    decision.metadata.update(figures)
    text = json.dumps({**figures, "model": model.uri}, indent=1)
    pathlib.Path(decision.path).write_text(text + "\n", encoding="utf-8")
    print(f"{verdict}: accuracy {accuracy:.4f}, the floor is {min_accuracy:.4f}")
    return (verdict,)
