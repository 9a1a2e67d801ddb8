"""Reading of records: each replica's batches, and the inputs of the model."""
