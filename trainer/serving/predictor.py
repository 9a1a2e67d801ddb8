"""Answer requests with a SavedModel: a predictor for Google's custom prediction routines.

    predictor = Predictor()
    predictor.load("gs://bucket/model")
    predictor.postprocess(predictor.predict(predictor.preprocess({"instances": [...]})))

Predictor has the interface of google.cloud.aiplatform.prediction.predictor.Predictor, but does not
inherit from it: importing that package takes 4 s, and the image would need Google's SDK.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/custom-prediction-routines
"""

import collections
import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pydantic_core
import tensorflow as tf

from trainer.data.schema import EXTRA_ASSETS, FILE_NAME, find_training_data
from trainer.data.tables.columns import list_columns
from trainer.exported import saved_model
from trainer.serving import DIGEST_VARIABLE, VERSION_VARIABLE, image_files
from trainer.serving.decoding_processes import Decode
from trainer.serving.image_files import Outcome
from trainer.serving.image_instances import ImageInstances
from trainer.serving.instances import (
    BATCH,
    BYTES,
    DEFAULT,
    EXAMPLES,
    KEY,
    MAX_INSTANCES,
    BadInstancesError,
    Request,
    instances_of,
)
from trainer.serving.row_instances import RowInstances
from vertex.errors import InputError, first_line


@dataclasses.dataclass(frozen=True)
class RequestPredictions:
    """The model's answers to a request's instances, in order."""

    keys: list[Any]
    outcomes: list[Any]  # for each instance, what the model answers by name, or an error message


class Predictor:
    """Answer requests with a SavedModel that trainer/exported/export.py wrote.

    Args:
        version: the model version that every answer names; default: $MODEL_VERSION, which
            register_model sets, else Vertex AI's ID of the deployed model.
    """

    batch = BATCH
    """Number of instances per call of the model."""
    decode_files: Decode | None = None
    """Decodes image files in another process; None for a model of rows."""
    stored_bytes = 0
    """Memory that the image of a file takes, once it is decoded."""

    def __init__(self, version: str = "") -> None:
        self.version = version

    def load(self, artifacts_uri: str, **_: Any) -> None:
        """Load the SavedModel in the folder `artifacts_uri`, and warm it up; see `saved_model`."""
        self.version = (
            self.version
            or os.environ.get(VERSION_VARIABLE, "")
            or os.environ.get("AIP_DEPLOYED_MODEL_ID", "")
        )
        digest = os.environ.get(DIGEST_VARIABLE, "")
        self._model = saved_model.load(artifacts_uri, DEFAULT, EXAMPLES, digest=digest)
        self._signatures = self._model.signatures
        specs = self._signatures[DEFAULT].structured_input_signature[1]
        self._parser: ImageInstances | RowInstances
        dataset = find_training_data(artifacts_uri)
        if dataset is None:
            raise InputError(
                f"the model at {artifacts_uri} has no {EXTRA_ASSETS}/{FILE_NAME}, which describes "
                "its inputs; train the model again"
            )
        if BYTES in self._signatures:
            ((name, spec),) = specs.items()
            records = image_files.find_format(dataset)
            self._parser = ImageInstances(name, tuple(spec.shape[1:]), records)
            self.stored_bytes = math.prod(spec.shape[1:])
            self.decode_files = functools.partial(image_files.decode_in_process, records)
        else:
            columns = {name: spec.dtype.name for name, spec in specs.items()}
            # The signature has neither the order of the columns nor their own names.
            self._parser = RowInstances(columns, list_columns(dataset))
            # Rows take little memory, and a call has the overhead of a few hundred rows.
            self.batch = MAX_INSTANCES
        self.predict(self._parser.make_blank())

    def decode(self, body: bytearray) -> Any:
        """Parse a request's JSON for `preprocess`; raise ValueError if it is not JSON."""
        if isinstance(self._parser, ImageInstances):
            pixels = self._parser.parse_array(body)
            if pixels is not None:
                return {"instances": pixels}
        return pydantic_core.from_json(body)

    def preprocess(self, prediction_input: Any) -> Request:
        """Check a request's body, convert its instances to arrays, and decode its image files.

        Raise RequestError if there are no instances, too many, or unusable ones.
        """
        request = self.parse(prediction_input)
        if isinstance(self._parser, ImageInstances):
            request = self._parser.decode_files(request)
        return request

    def parse(self, prediction_input: Any) -> Request:
        """Check and convert instances as `preprocess` does, but leave images in `Request.files`."""
        request = self._parser.parse(instances_of(prediction_input))
        if isinstance(self._parser, RowInstances):
            self._parser.check_values(request)
        return request

    def merge_files(self, request: Request, outcomes: Sequence[Outcome]) -> Request:
        """Return a request with the decoded images of its files; raise BadInstancesError."""
        assert isinstance(self._parser, ImageInstances)
        return self._parser.merge_files(request, outcomes)

    def predict(self, instances: Request) -> RequestPredictions:
        """Answer a request."""
        return self.predict_together([instances])[0]

    def postprocess(self, prediction_results: RequestPredictions) -> dict[str, Any]:
        """Return the answer's body; raise BadInstancesError for instances the model can't read."""
        keys, outcomes = prediction_results.keys, prediction_results.outcomes
        problems = {
            index: outcome for index, outcome in enumerate(outcomes) if isinstance(outcome, str)
        }
        if problems:
            raise BadInstancesError(problems, keys)
        predictions = []
        for outcome, key in zip(outcomes, keys, strict=True):
            prediction = outcome | {"model_version": self.version}
            if key is not None:
                prediction[KEY] = key
            predictions.append(prediction)
        return {"predictions": predictions}

    def predict_together(self, requests: Sequence[Request]) -> list[RequestPredictions]:
        """Answer requests with one call of the model per signature and batch."""
        answers = [RequestPredictions(request.keys, [""] * len(request)) for request in requests]
        by_signature = collections.defaultdict(list)
        for answer, request in zip(answers, requests, strict=True):
            for part in request.parts:
                by_signature[part.signature].append((answer, part))
        for signature, parts in by_signature.items():
            inputs = {
                name: np.concatenate([part.inputs[name] for _, part in parts])
                for name in parts[0][1].inputs
            }
            targets = [(answer, index) for answer, part in parts for index in part.indices]
            outcomes = self._run_signature(signature, inputs)
            for (answer, index), outcome in zip(targets, outcomes, strict=True):
                answer.outcomes[index] = outcome
        return answers

    def _run_signature(self, signature: str, inputs: dict[str, np.ndarray]) -> list[Any]:
        """Answer instances in batches; return `RequestPredictions.outcomes`."""
        count = len(next(iter(inputs.values())))
        outcomes: list[Any] = [None] * count
        ranges = [(start, min(start + self.batch, count)) for start in range(0, count, self.batch)]
        while ranges:
            start, end = ranges.pop()
            batch = {name: tf.constant(value[start:end]) for name, value in inputs.items()}
            try:
                outputs = self._signatures[signature](**batch)
            except tf.errors.ResourceExhaustedError:
                raise
            except tf.errors.OpError as error:
                # One bad instance fails its whole batch: bisect to find it.
                if end - start == 1:
                    outcomes[start] = f"can't be read by the model: {first_line(error)}"
                else:
                    middle = (start + end) // 2
                    ranges += [(start, middle), (middle, end)]
                continue
            outcomes[start:end] = _list_answers(outputs)
        return outcomes


def _decode(texts: Iterable[bytes]) -> list[str]:
    return [text.decode(errors="replace") for text in texts]


def _list_answers(outputs: dict[str, tf.Tensor]) -> list[Any]:
    """Return what a signature answers to each instance, or an error message."""
    values = {name: outputs[name].numpy() for name in sorted(outputs)}
    lists = {name: value.tolist() for name, value in values.items()}
    for name, value in values.items():
        if value.dtype == object and value.ndim == 1:
            lists[name] = _decode(lists[name])
        elif value.dtype == object:  # labels that an instance has; "" is none
            lists[name] = [_decode(filter(None, row)) for row in lists[name]]
    answers: list[Any] = [
        dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)
    ]
    for name, value in values.items():
        if value.dtype != object:
            finite = np.isfinite(value).reshape(len(value), -1).all(axis=1)
            for index in np.flatnonzero(~finite):
                answers[index] = f"has {name} that are not finite"
    return answers
