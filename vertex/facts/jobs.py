"""Names and limits of jobs, as several of this project's packages use them.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/distributed-training
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/configure-compute
"""

ROLES = ("chief", "worker", "ps", "evaluator")
"""Role of each worker pool, by position in worker_pool_specs."""
SCHEDULING_STRATEGIES = ("STANDARD", "SPOT", "FLEX_START")
SMALLEST_DISK_GB, LARGEST_DISK_GB = 100, 64_000
"""Bounds of a boot disk's size."""
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
"""Final states of a run or job, without prefix."""
RUN_LABEL = "vertex-ai-pipelines-run-billing-id"
"""Label of the resources of a pipeline's run."""
TASK_LABEL = "vertex-ai-pipelines-task"
"""Label of a job, which names the pipeline task that created it."""
RUN_TASKS = 10_000
"""Pipeline tasks per job, from the same page as TASK_BYTES."""
TASK_ARTIFACTS = 100
"""Input and output artifacts of a pipeline task, from the same page as TASK_BYTES."""
TASK_BYTES = 131_072
"""Maximum size of JSON payload containing output parameters and artifacts per pipeline task.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/quotas
"""
