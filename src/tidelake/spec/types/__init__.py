"""Data types: values, texts and JSON, Arrow, and what formats and indexes support.

Modules:
    arrow_nested   take nested Arrow arrays apart and rebuild them
    arrow_types    types from and to Arrow types
    data_types     data types as values
    format_types   which types a file format can store
    index_types    which types a file index can be built on
    type_codec     types from and to SQL text and the JSON of schema files
"""
