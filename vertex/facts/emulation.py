"""The names by which clients find an emulator on this machine."""

ENDPOINT_VARIABLE = "VERTEX_AI_ENDPOINT"
TRANSPORT_VARIABLE = "VERTEX_AI_TRANSPORT"
TOKEN_VARIABLE = "VERTEX_AI_ACCESS_TOKEN"  # noqa: S105 - the emulator prints a new one at each start
# Not a valid project ID, which has at least 6 characters.
PROJECT = "local"
"""Project of the resources of a run on this machine."""
LOCATION = "local"
"""Their region."""
