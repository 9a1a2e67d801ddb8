"""Tables: the schema of their columns, the reading of rows, and the model's inputs."""
