"""Reading the rows of splits."""
