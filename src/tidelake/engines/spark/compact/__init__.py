"""Compaction as Spark jobs: `runner` runs steps in tasks, `replay` gives staged rows their buckets."""
