"""Reads data files of any format with the fields of another schema.

* `data_file`: reads one data file
* `request`, `stages`: what to read, and the steps from an open file to batches
"""
