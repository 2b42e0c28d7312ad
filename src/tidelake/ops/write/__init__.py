"""Turning rows into data files and commit messages."""
