"""Options of the pipeline beside those of training, and the checks before a job is paid for.

`pipeline_options`, `prediction_options` and `search_options` are groups of parameters;
`preparation` and `prediction_input` check them against records and models; `code_digest` identifies
the code that trains.
"""
