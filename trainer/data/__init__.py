"""Data of a training: sources, tables and images, the records made of them, and their storage."""
