"""The merge engines, one small file each."""
