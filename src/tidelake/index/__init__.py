"""Index files of the format as bytes and values: hash indexes of dynamic buckets. Opens no file."""
