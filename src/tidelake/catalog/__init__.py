"""Finding tables in a warehouse."""
