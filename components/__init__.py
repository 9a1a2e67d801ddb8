"""KFP components: a typed function each, which calls `trainer`."""

from components.vertex import lazy_services

lazy_services.install()
