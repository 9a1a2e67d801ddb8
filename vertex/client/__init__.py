"""Clients of Google Cloud's services: deadlines, retries and errors in one line."""
