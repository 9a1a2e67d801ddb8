"""Tables: their schema, reading their rows, and the model's inputs."""
