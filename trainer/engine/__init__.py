"""The engine that trains Keras models on the replicas of a job."""
