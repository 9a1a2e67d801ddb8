"""Write the report of a trained model as a single HTML file; see `document`."""
