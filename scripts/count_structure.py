"""Count what the structure of `src` promises to keep small; `tests/docs/test_structure.py` keeps the figures there.

Usage: python scripts/count_structure.py [--list NAME]   (a table of all figures, or the places behind one of them)
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "tidelake"
Place = str
"""A file, a line and what is there."""

_RAW_MAPS = frozenset({"Mapping[str, str]", "dict[str, str]", "Mapping[str, object]", "Mapping[str, str] | None"})
_SINGLE_VALUE_PARSERS = frozenset({"bool_option", "flag_option", "int_option", "enum_option", "names_option"})
_BUCKET_MODE_HOMES = ("spec/schemas/bucket_mode.py",)
_BUCKET_NUMBERS = frozenset({"bucket", "buckets", "each.bucket", "bucket.bucket", "POSTPONE_BUCKET"})
_PHRASES = re.compile(
    r"\b(is no|are no|was no|told|tells?|telling|anew|nobody|meanwhile|whoever|somebody|lies|lie)\b", re.IGNORECASE
)
# Words that end like participles and are nouns, adjectives or names of the format.
_NOT_PARTICIPLES = frozenset(
    {"seed", "speed", "need", "feed", "embed", "bring", "string", "substring", "thing", "ring", "king"}
)
_PARTICIPLE = re.compile(r"_*([a-z]+(?:ed|en|ing|wn|lt|ept|ent))$")
# `cut`, `put`, `read`, `set` and `split` are left out: their present tense looks the same, and a function that reads is
# well named by `read`.
_IRREGULAR = frozenset(
    [
        "bound",
        "begun",
        "dealt",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "held",
        "kept",
        "known",
        "laid",
        "left",
        "made",
        "met",
        "said",
        "seen",
        "sent",
        "shown",
        "spent",
        "stood",
        "sunk",
        "taken",
        "told",
        "thought",
        "understood",
        "won",
        "worn",
        "written",
    ]
)


@cache
def modules() -> tuple[tuple[str, ast.Module, str], ...]:
    """Every module of the package: its path below `src/tidelake`, its tree and its text."""
    texts = ((path.relative_to(ROOT).as_posix(), path.read_text()) for path in sorted(ROOT.rglob("*.py")))
    return tuple((name, ast.parse(text), text) for name, text in texts)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """What a caller passes: `self` and `cls` do not count."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [each for each in given if each.arg not in ("self", "cls")]


def raw_option_functions() -> Iterator[Place]:
    """Functions outside `options/` that take the raw map of a table's options; `io/` takes those of a storage."""
    for path, tree, _ in modules():
        if path.startswith(("options", "spec/schemas/option", "io/")):
            continue
        for node in functions(tree):
            for each in parameters(node):
                annotation = ast.unparse(each.annotation) if each.annotation else ""
                if "option" in each.arg and annotation in _RAW_MAPS:
                    yield f"{path}:{node.lineno} {node.name}({each.arg})"
                    break


def parse_sites() -> Iterator[Place]:
    """Places that turn text of options into values."""
    groups = {
        node.name
        for _, tree, _ in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "OptionGroup" for base in node.bases)
    }
    for path, tree, _ in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            owner, _, name = called.rpartition(".")
            if (name == "parse" and owner.rpartition(".")[2] in groups) or called in _SINGLE_VALUE_PARSERS:
                yield f"{path}:{node.lineno} {called}"


def steering_edits() -> Iterator[Place]:
    """Places that put a fixed key into a copy of an option map, to make a callee behave otherwise."""
    for path, tree, _ in modules():
        if path.startswith(("options", "spec/schemas/option", "testing/")):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Dict):
                continue
            spread = [ast.unparse(value) for key, value in zip(node.keys, node.values, strict=True) if key is None]
            fixed = [key for key in node.keys if isinstance(key, ast.Constant)]
            if fixed and any(re.search(r"option|dynamic", each) for each in spread):
                yield f"{path}:{node.lineno} {ast.unparse(node)}"


def bucket_mode_sites() -> Iterator[Place]:
    """Places that compare the option `bucket` with the numbers that stand for a mode.

    The bucket of a file or a message is not a mode: -2 is where staged rows are, -1 is a bucket that was not found.
    """
    for path, tree, _ in modules():
        if path in _BUCKET_MODE_HOMES or path.startswith("testing/"):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare):
                continue
            sides = [ast.unparse(each) for each in (node.left, *node.comparators)]
            named = any(re.search(r"bucket", each) and each not in _BUCKET_NUMBERS for each in sides)
            if named and any(each in ("-1", "-2", "POSTPONE_BUCKET") for each in sides):
                yield f"{path}:{node.lineno} {ast.unparse(node)}"


def private_names_in_engines() -> Iterator[Place]:
    """Private attributes of objects of other packages that engines use."""
    for path, tree, _ in modules():
        if not path.startswith("engines/"):
            continue
        own = {name for node in ast.walk(tree) for name in _defined(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls") and node.attr not in own:
                    yield f"{path}:{node.lineno} {owner}.{node.attr}"


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def wide_functions() -> Iterator[Place]:
    """Functions with more than ten parameters."""
    for path, tree, _ in modules():
        for node in functions(tree):
            if len(parameters(node)) > 10:
                yield f"{path}:{node.lineno} {node.name}: {len(parameters(node))}"


def widest_function() -> int:
    """The number of parameters of the widest function."""
    return max(len(parameters(node)) for _, tree, _ in modules() for node in functions(tree))


def broad_excepts() -> Iterator[Place]:
    """Handlers of every `Exception` or `BaseException`."""
    for path, tree, _ in modules():
        if path.startswith("testing/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "BaseException"
                if caught in ("Exception", "BaseException"):
                    yield f"{path}:{node.lineno} except {caught}"


def package_cycles() -> Iterator[Place]:
    """Pairs of packages that import each other, deferred and type-only imports included."""
    edges: dict[str, set[str]] = defaultdict(set)
    packages = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in ROOT.rglob("*.py")} - {"."}
    for path, tree, _ in modules():
        here = _package(path.removesuffix(".py").replace("/", "."), packages)
        if path.startswith("testing/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tidelake."):
                there = _package(node.module.removeprefix("tidelake."), packages)
                if there != here:
                    edges[here].add(there)
    for one in sorted(edges):
        for other in sorted(edges[one]):
            if one < other and one in edges[other]:
                yield f"{one} <-> {other}"


def _package(module: str, packages: set[str]) -> str:
    """The package of a module; a module at the top, such as `errors`, stands for itself."""
    package = module
    while package and package not in packages:
        package = package.rpartition(".")[0]
    return package or module


def participle_names() -> Iterator[Place]:
    """Functions whose name is a single participle."""
    for path, tree, _ in modules():
        for node in functions(tree):
            name = node.name.lstrip("_")
            if "_" in name or name in _NOT_PARTICIPLES or node.name.startswith("__"):
                continue
            if name in _IRREGULAR or re.fullmatch(r"[a-z]+(?:ed|ing)", name):
                yield f"{path}:{node.lineno} {node.name}"


def odd_phrases() -> Iterator[Place]:
    """Phrases that read like a translation."""
    for path, _, text in modules():
        for number, line in enumerate(text.splitlines(), 1):
            for found in _PHRASES.finditer(line):
                yield f"{path}:{number} {found[0]}: {line.strip()[:100]}"


def lines() -> int:
    """The number of lines of `src`."""
    return sum(text.count("\n") for _, _, text in modules())


LISTED: dict[str, Callable[[], Iterator[Place]]] = {
    "raw-option-functions": raw_option_functions,
    "parse-sites": parse_sites,
    "steering-edits": steering_edits,
    "bucket-mode-sites": bucket_mode_sites,
    "private-names-in-engines": private_names_in_engines,
    "wide-functions": wide_functions,
    "broad-excepts": broad_excepts,
    "package-cycles": package_cycles,
    "participle-names": participle_names,
    "odd-phrases": odd_phrases,
}


def figures() -> dict[str, int]:
    """Every figure by its name."""
    counted = {name: sum(1 for _ in find()) for name, find in LISTED.items()}
    return {**counted, "widest-function": widest_function(), "lines": lines()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--list"]:
        sys.stdout.write("\n".join(LISTED[sys.argv[2]]()) + "\n")
    else:
        for name, count in figures().items():
            sys.stdout.write(f"{name:26} {count:7,}\n")
