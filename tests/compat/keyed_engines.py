"""The merge engines that the suites in turns try, with their options."""

from __future__ import annotations

ADDS, ANY, BALANCED = (0, 2), (0, 0, 0, 2, 3, 1), (0, 0, 1, 2)
GROUP = {"merge-engine": "partial-update", "fields.n.sequence-group": "v,s"}


ENGINES = {
    "deduplicate": ({}, ANY),
    "deduplicate, deletes ignored": ({"ignore-delete": "true"}, ANY),
    "deduplicate by sequence": ({"sequence.field": "n"}, ANY),
    "deduplicate by sequence, descending": ({"sequence.field": "n", "sequence.field.sort-order": "descending"}, ANY),
    "partial-update": ({"merge-engine": "partial-update"}, ADDS),
    "partial-update, deletes remove": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        ANY,
    ),
    "sequence group": (GROUP, ANY),
    "sequence group, deletes remove": ({**GROUP, "partial-update.remove-record-on-sequence-group": "n"}, ANY),
    "sequence group with a sum": ({**GROUP, "fields.s.aggregate-function": "sum"}, ANY),
    "aggregation": (
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.v.aggregate-function": "listagg",
            "fields.s.aggregate-function": "max",
        },
        ADDS,
    ),
    "aggregation with retractions": (
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.s.aggregate-function": "sum"},
        BALANCED,
    ),
    "aggregation, deletes remove": (
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.s.aggregate-function": "min",
            "aggregation.remove-record-on-delete": "true",
        },
        (0, 0, 2, 3),
    ),
    "first-row": ({"merge-engine": "first-row"}, (0,)),
}


WORDS = ("+I", "-U", "+U", "-D")
