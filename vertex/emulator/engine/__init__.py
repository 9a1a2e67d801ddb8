"""The engine that executes the PipelineSpec of a PipelineJob on this machine.

A file a thought: `spec_rules` refuses an invalid spec, `pipeline_run` orders the tasks,
`task_inputs` resolves what a task is given and reads what it returns, `expressions` and
`placeholders` evaluate what is written in the spec,
`task_processes` starts a task's process, `output_cache` reuses the outputs of earlier tasks.
"""
