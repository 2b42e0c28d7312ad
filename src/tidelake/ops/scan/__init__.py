"""Finding the files of a snapshot: read the lists, skip by their ranges, decode what is left."""
