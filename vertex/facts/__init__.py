"""Facts that Google documents of Vertex AI: regions, names, limits and restarts.

Each module names its pages.
"""
