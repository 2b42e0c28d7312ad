"""Avro containers, and records from and to columns.

Modules:
    container   Avro containers: blocks, compression
    decode      Avro records to columns
    encode      columns to Avro records
"""
