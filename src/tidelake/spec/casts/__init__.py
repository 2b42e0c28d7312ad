"""Type changes of columns, and the conversion of old values.

Modules:
    cast_text     values from and to text, for casts
    cast_values   convert values of an old column type, as Java does
    casts         which type changes are allowed, and texts of default values
"""
