"""Training of a recipe, as each replica of a job runs it.

`replica` runs a replica by its role: `loop` trains, synchronously; with parameter servers,
`asynchronous` schedules the steps of its workers; `evaluator` scores checkpoints; `program` runs a
user's own program instead. `job` and `config` read what a replica is to do.

`task_model` is what is minimized and measured, `optimization` has optimizers and learning rates.
`steps` gives a batch of records to a step of trainer/engine, which computes it and saves
checkpoints; `ownership` checks whose checkpoints a folder has.

Between the steps: `progress` is saved with the weights, `logs` writes history and TensorBoard,
`profiling` and `trial` report.
"""
