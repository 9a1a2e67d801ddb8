"""The report of a trained model, one HTML file; `document` writes it."""
