"""Defining tables: creating the first schema and changing it."""
