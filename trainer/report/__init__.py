"""The report of a trained model as one HTML file, which `document` writes."""
