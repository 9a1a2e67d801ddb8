"""The engine, which trains a Keras model on the replicas of a job as one process would.

It has three callers: the recipes' loop (trainer/training), `fit` (trainer/fit), and with it a
user's program. It knows no recipe, no task and no report.

`step` computes a model's train_step or test_step on all replicas together, each for its rows of a
batch; `worker_step` on one worker, which applies its gradients to parameter servers at once. No
other module has an optimizer apply gradients. They promise:

- Weights after a step are those of one process that has the whole batch, up to rounding, however
  its rows are divided: losses are means over the batch, or what `step_trial` finds that a step
  means; masks, synchronized normalization, dropout and other draws (`draws`) are the batch's.
- Gradients are summed before they are clipped, in one message with the metrics (`metric_states`)
  and the number of replicas that were asked to stop (`replica_sums`).
- A metric's update_state adds a replica's rows; whoever reads its result, a step or a callback,
  gets that of all rows.
- A loss that compares rows is computed of the whole batch where asked (`gathered_losses`).
- Gradient accumulation and averages of weights work as on one process (`periodic_updates`).
- What can't be so is refused by name before the first update (`tried_step`, `compile_checks`).
- Workers that end an epoch with different weights end the training by name (`agreement`).

`checkpoints` saves variables and a state in Python, so that a training that was killed ends with
the bits of one that was not. `cluster`, `strategies`, `parameter_servers`, `liveness` and
`rejoin` connect the replicas.
"""
