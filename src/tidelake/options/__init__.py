"""How options are declared, parsed and documented. The code that reads an option declares it.

Modules:
    values          parse and print the text of one value
    declare         declare groups of options, and parse them
    table_options   the options in force for one use of a table
    catalogue       every known option key, with type, default and description
    capabilities    what tidelake does with each key: honours, refuses or ignores it, and why
"""

from tidelake.options.declare import (
    Affects,
    OptionGroup,
    OptionSpec,
    UnknownKey,
    all_groups,
    all_options,
    at_least,
    between,
    check_declared,
    nearest,
    option,
    same_option,
    specs_of,
    unknown_keys,
)
from tidelake.options.table_options import TableOptions
from tidelake.options.values import (
    INT32_MAX,
    INT64_MAX,
    Bytes,
    DurationMs,
    Int64,
    TextMap,
    format_bytes,
    format_duration,
    option_text,
    parse_bool,
    parse_bytes,
    parse_duration,
    parse_enum,
    parse_float,
    parse_int,
    parse_list,
    parse_map,
)

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "Affects",
    "Bytes",
    "DurationMs",
    "Int64",
    "OptionGroup",
    "OptionSpec",
    "TableOptions",
    "TextMap",
    "UnknownKey",
    "all_groups",
    "all_options",
    "at_least",
    "between",
    "check_declared",
    "format_bytes",
    "format_duration",
    "nearest",
    "option",
    "option_text",
    "parse_bool",
    "parse_bytes",
    "parse_duration",
    "parse_enum",
    "parse_float",
    "parse_int",
    "parse_list",
    "parse_map",
    "same_option",
    "specs_of",
    "unknown_keys",
]
