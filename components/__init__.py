"""KFP components: a typed function each, which calls `trainer`."""

from vertex.facts import lazy_services

lazy_services.install()
