"""The steps of the pipeline: a KFP component each, a typed function that calls `trainer`."""

from vertex.facts import lazy_services

lazy_services.install()
