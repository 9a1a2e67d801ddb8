"""The settings of a Google Cloud project, and the connection to its services."""
