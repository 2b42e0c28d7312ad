"""Looking after a table: checking it now, cleaning it later."""
