"""Training, as each replica of a job runs it.

`replica` runs a replica by its role: `loop` trains, synchronously; with parameter servers,
`asynchronous` schedules the steps of the workers that `parameter_servers` connects; `evaluator`
scores checkpoints; `program` runs a user's own program instead. `job`, `config` and `cluster` read
what a replica is to do, `strategies` creates its tf.distribute strategy.

A step: `objective` is what is minimized and measured, `optimization` has optimizers and learning
rates, `augmentation` and `draws` what is random, `applied_optimizers`, `embeddings`,
`periodic_updates` and `compile_checks` what tf.distribute needs beside Keras.

Between the steps: `progress` is saved by `checkpoint` with the weights, `logs` writes history and
TensorBoard, `profiling` and `trial` report, `liveness` and `rejoin` deal with lost replicas. In the
end, `weights` saves the Keras model and `export` the SavedModel.
"""
