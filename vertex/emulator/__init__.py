"""An emulator of Vertex AI's API, which runs its jobs on this machine.

- `server` serves REST and gRPC. `resources` is the base of services, with `resource_store`,
  `operations`, `messages`, `http_rules`, `proto_rules`, `field_rules` and `api_error`.
- Services: `pipeline_service` (whose pipelines `engine` executes), `schedule_service`,
  `model_service`, `endpoint_service`, `metadata_service`, `monitoring_service`; of other APIs,
  `artifact_registry`, `cloud_storage` and `project_services`.
- Jobs: `background_jobs` is the base of `job_service` (CustomJobs, checked by `job_rules`, each
  replica a `replica_process`), `tuning_service` (`tuning_rules`, `tuning_search`,
  `tuning_measurements`) and `batch_service` (`batch_rules`, `batch_input`, `model_server`).
  `job_state` has the files by which other processes follow them.
- Processes: `processes`, `fork_server`, `containers`, `environment`; `files` and `clock`.
"""
