"""Rewriting files so that reads get cheaper and no row changes."""
