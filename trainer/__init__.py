"""The code that runs in the containers: data, models, training, evaluation and serving."""

import gc

# With the default of 700, garbage collection takes a quarter of the time of importing TensorFlow or
# Google's clients, and finds nothing.
gc.set_threshold(50_000)
