"""Keras' `fit`, also on several workers.

    from trainer.fit import fit

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([...])
        model.compile("adam", "mse", metrics=["mae"])
    history = fit(model, dataset, epochs=10, directory="gs://bucket/run")

Keras 3's own `fit` fails under MultiWorkerMirroredStrategy (keras#20585). This one trains what
`compile` says, with the arguments, callbacks and results of Keras, as one process would: every
worker reads the same global batches and trains on its own rows of each (trainer/engine). All
workers run the callbacks, and stop together. Only the chief writes their files, and shows progress.
docs/fit.md lists what is equal to Keras, what is refused and what differs.

With `directory`, the chief saves a checkpoint after each epoch, and after every `checkpoint_steps`
steps. A job that is started again goes on from there. Without a strategy of several replicas and
without `checkpoint_steps`, the model's own `fit` trains.

Workers that import this module before they have set a random seed get the same one, so that they
shuffle alike.
"""

from trainer.fit.distributed_fit import create_strategy, fit, is_chief

__all__ = ["create_strategy", "fit", "is_chief"]
