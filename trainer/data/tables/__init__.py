"""Tables: their schema, the reading of their rows, and the model's inputs.

files to rows        dialect, sniffing and encodings; text_stream, csv_text, batches; rows
the schema           columns, schema_parser; table_source is the base class of sources
forms of values      number_forms, dates, values; cells and labels read columns by them
rows to records      parsing, splits, statistics, words
records to inputs    inputs, in the graph that the SavedModel shares
recipes for tables   proposal and label_proposal, of what table_sample has read;
                     number_finder, date_finder and form_finder, from forms.toml
"""
