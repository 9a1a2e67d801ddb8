"""Keras' `fit`, also on several workers.

    from trainer.fit import fit

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([...])
        model.compile("adam", "mse", metrics=["mae"])
    history = fit(model, dataset, epochs=10, directory="gs://bucket/run")

Keras 3's own `fit` fails under MultiWorkerMirroredStrategy (keras#20585). This one trains what
`compile` says, with the arguments, callbacks and results of Keras, as one process would:

- Every worker reads the same global batches, and learns from its rows of each. Gradients are those
  of the mean over the global batch, however its rows are divided, and so are dropout and other
  draws of keras.random (trainer/engine/draws.py). What is not a mean over rows is found by a trial
  (step_trial.py): it is summed as its step means it, or refused.
- Metrics are sums over all rows, also in the logs of a batch.
- All workers run the callbacks, and stop together. Only the chief writes their files, and shows
  progress.
- With `directory`, the chief saves a checkpoint after each epoch, and after every
  `checkpoint_steps` steps. A job that is started again goes on from there.

Without a strategy of several replicas and without `checkpoint_steps`, the model's own `fit` trains.

Keras and TensorFlow have no hooks for this. Some of their functions are therefore replaced, for the
thread that trains, while a step is traced. All private parts that are used stand in
trainer/engine/internals.py, and are tested with each minor version of Keras that pyproject.toml
allows.

Workers that import this module before they have set a random seed get the same one, so that they
shuffle alike.
"""

from trainer.fit.distributed_fit import create_strategy, fit, is_chief

__all__ = ["create_strategy", "fit", "is_chief"]
