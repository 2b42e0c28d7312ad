"""MERGE as Spark jobs: `job` plans and commits, `source` asks about the source rows, `tasks` matches and writes."""
