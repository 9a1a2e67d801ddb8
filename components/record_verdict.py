"""The gate's decision, kept."""

from kfp import dsl

from trainer.worker_pools import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def record_verdict(
    model: dsl.Input[dsl.Model],
    verdict: dsl.Output[dsl.Artifact],
    accepted: bool,
    accuracy: float,
    min_accuracy: float,
):
    """Records whether a model passed the gate, and by which figures.

    Args:
        model: Model that was judged.
        accepted: Whether it passed.
        accuracy: Its accuracy on the test split.
        min_accuracy: The least that would pass.
    """
    from trainer.files import write_json

    decision = {
        "verdict": "accepted" if accepted else "rejected",
        "accuracy": accuracy,
        "min_accuracy": min_accuracy,
        "model": model.uri,
    }
    verdict.metadata.update(decision)
    write_json(verdict.uri, decision)
    relation = ">=" if accepted else "<"
    print(f"{decision['verdict']}: accuracy {accuracy:.4f} {relation} {min_accuracy:.4f}")
