"""Creating and altering tables.

Schemas and options:
    schemas             publish the first schema and changes of it
    checks              check options before they are stored or used
    merge_schema        changes of the schema that written rows need
"""
