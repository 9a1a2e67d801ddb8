"""Tables: what their columns are, how rows are read, and what a model is given of them."""
