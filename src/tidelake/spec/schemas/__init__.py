"""Schemas, their evolution, and the bucket mode that follows from them.

Modules:
    bucket_mode      the bucket mode of a table
    evolution        schema and changes to the next schema
    option_rules     rules between options, and option keys that name columns
    schema           the schema document, new schemas and their rules
    schema_options   the options that decide which schemas are valid and which changes are allowed
"""
