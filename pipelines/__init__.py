"""The pipelines, their recipes, and the command line that compiles, runs and operates them.

`training_pipeline` and `prediction_pipeline` are the pipelines; `user_steps` are the user's
own steps in them; `compilation` makes a `package` of one. A `recipe` names values for their
`parameters`, and the `run_options` of its runs. `new_recipe` writes a recipe for a table, and, with
`new_image_recipe`, for photos. `plan` shows the price, `request_drift` and `instance_files` serve
commands about predictions. `api` is the command line as functions; `startup`, `printing` and
`version` serve all of them.
"""
