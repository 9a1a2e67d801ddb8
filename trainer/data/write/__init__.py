"""Writing of records: create_tfrecords, from a source to TFRecord shards.

`writer` writes them here; `beam_pipeline` with Apache Beam, run by `beam_engine`, also on
`dataflow`. `open_source` is what both read, in its two kinds `open_images` and `open_table`, with
their `written_labels`; `record_options` has the options.

In order: `fingerprint` lists the source, `split_plan` assigns splits, `layout` cuts the plan into
shards, `spill` partitions the rows by them, `shards` writes each, perhaps copied from a `store`,
`output` cleans and completes the folder, `manifest` describes it, `checks` refuses what can't be
used.
"""
