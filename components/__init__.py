"""KFP components: a typed function each, which calls `trainer`."""

from components import lazy_services

lazy_services.install()
