"""The files of a trained model: SavedModel, Keras file, metrics and history."""
