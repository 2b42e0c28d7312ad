"""The verbs. Each takes what it needs (stores, a schema, its options, the doors), never a table handle."""
