"""64-bit roaring bitmaps in the serialised format of Java's `Roaring64Bitmap`, which is not the portable one.

A value has 48 high bits, which identify a container, and 16 low bits inside it. The high bits are the keys of an
adaptive radix tree (inner nodes of 4, 16, 48 or 256 children with their common prefix), written root first; the
containers follow in an array that grows by half, with its free places. A union keeps the tree of the first bitmap and
inserts the missing keys of the second in ascending order, as Java does: nodes of 48 children and the array preserve the
order of insertion, so another order would give other bytes.

Invariant: `unite` returns the bytes that Java returns for the same two inputs.

The format, all numbers little endian:

    u8 0 (empty, and nothing follows) or 1; i64 number of keys; the nodes; the containers
    node        u8 kind, u16 children, u8 length of the prefix, the prefix; of a leaf 6 bytes of key and i64 place of
                its container, of an inner node its branches, then its children in ascending order
    containers  i32 number of arrays (1), a mark, i32 places; of each place u8 0 (free) or 1, u8 kind, i32 values and
                the payload; i64 number of containers, i32 and i32 the last place
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

from tidelake.errors import FormatError

__all__ = ["Container", "unite"]

_KEY_SIZE: Final = 6
_NODE4, _NODE16, _NODE48, _NODE256, _LEAF = range(5)
_CAPACITY: Final = {_NODE4: 4, _NODE16: 16, _NODE48: 48, _NODE256: 256}
RUN, BITMAP, ARRAY = range(3)
_TRIMMED: Final = b"\xfe"
_BITMAP_SIZE: Final = 8192
_VALUES_MAX: Final = 65536


@dataclass(frozen=True, slots=True)
class Container:
    """The low bits of one key as stored: runs, a bitmap or a sorted array."""

    kind: int
    count: int
    payload: bytes


@dataclass(slots=True)
class _Leaf:
    key: bytes
    place: int


@dataclass(slots=True)
class _Inner:
    prefix: bytes
    kind: int = _NODE4
    children: dict[int, _Inner | _Leaf] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    """The place of each child in a node of 48; the other nodes are ordered by branch."""

    def add(self, branch: int, child: _Inner | _Leaf) -> None:
        if len(self.children) == _CAPACITY[self.kind]:
            self.kind += 1
            if self.kind == _NODE48:
                self.order = {each: place for place, each in enumerate(sorted(self.children))}
        if self.kind == _NODE48:
            self.order[branch] = len(self.children)
        self.children[branch] = child


@dataclass(slots=True)
class _Tree:
    root: _Inner | _Leaf | None
    places: list[Container | None]
    capacity: int
    containers: int

    def leaves(self) -> Iterator[_Leaf]:
        """Return all keys, ascending."""
        return _leaves(self.root) if self.root is not None else iter(())

    def insert(self, key: bytes, container: Container) -> None:
        """Add a new key."""
        if len(self.places) == self.capacity:
            self.capacity = max(self.capacity + 1, self.capacity + self.capacity // 2)
        self.root = _insert(self.root, _Leaf(key, len(self.places)), 0)
        self.places.append(container)
        self.containers += 1


def unite(one: bytes, other: bytes, join: Callable[[Container, Container | None], Container]) -> bytes:
    """Return the union of two serialised bitmaps; `join` unites two containers, or optimises a single one.

    Raises:
        FormatError: The bytes are not a serialised bitmap.
    """
    tree, more = _parse(one), _parse(other)
    found = {leaf.key: leaf.place for leaf in tree.leaves()}
    for leaf in more.leaves():
        container = more.places[leaf.place]
        assert container is not None
        place = found.get(leaf.key)
        if place is None:
            tree.insert(leaf.key, container)
        else:
            own = tree.places[place]
            assert own is not None
            tree.places[place] = join(own, container)
    tree.places = [None if each is None else join(each, None) for each in tree.places]
    return _serialise(tree)


# ------------------------------------------------------------------------------------------------------------ the tree


def _leaves(node: _Inner | _Leaf) -> Iterator[_Leaf]:
    if isinstance(node, _Leaf):
        yield node
        return
    for branch in sorted(node.children):
        yield from _leaves(node.children[branch])


def _common(one: bytes, other: bytes) -> int:
    size = min(len(one), len(other))
    return next((place for place in range(size) if one[place] != other[place]), size)


def _insert(node: _Inner | _Leaf | None, leaf: _Leaf, depth: int) -> _Inner | _Leaf:
    if node is None:
        return leaf
    rest = node.key[depth:] if isinstance(node, _Leaf) else node.prefix
    shared = _common(rest, leaf.key[depth:])
    if isinstance(node, _Leaf) or shared < len(rest):
        parent = _Inner(rest[:shared])
        parent.add(rest[shared], node)
        if isinstance(node, _Inner):
            node.prefix = rest[shared + 1 :]
        parent.add(leaf.key[depth + shared], leaf)
        return parent
    branch = leaf.key[depth + shared]
    child = node.children.get(branch)
    if child is None:
        node.add(branch, leaf)
    else:
        node.children[branch] = _insert(child, leaf, depth + shared + 1)
    return node


# ------------------------------------------------------------------------------------------------------------- reading


def _raise_malformed(reason: str) -> NoReturn:
    raise FormatError("value is not a serialised 64-bit roaring bitmap", reason=reason)


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            _raise_malformed("it ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")


def _parse(data: bytes) -> _Tree:
    reader = _Reader(data)
    mark = reader.number(1)
    if mark == 0:
        return _Tree(None, [], 0, 0)
    if mark != 1:
        _raise_malformed("its first byte is neither 0 nor 1")
    keys = reader.number(8)
    root = _parse_node(reader, 0)
    if reader.number(4) != 1 or reader.take(1) != _TRIMMED:
        _raise_malformed("its containers are not in one array")
    capacity = reader.number(4)
    if capacity > len(data):
        _raise_malformed("it has more places than bytes")
    places: list[Container | None] = [_parse_container(reader) for _ in range(capacity)]
    containers, _, last = reader.number(8), reader.number(4), reader.number(4)
    if reader.at != len(data) or last >= capacity or containers > capacity:
        _raise_malformed("it does not end where its lengths say")
    tree = _Tree(root, places[: last + 1], capacity, containers)
    found = [leaf.place for leaf in tree.leaves()]
    if len(found) != keys or any(not 0 <= place <= last or places[place] is None for place in found):
        _raise_malformed("its keys do not name its containers")
    return tree


def _parse_node(reader: _Reader, depth: int) -> _Inner | _Leaf:
    kind, count = reader.number(1), reader.number(2)
    prefix = reader.take(reader.number(1))
    if kind == _LEAF:
        return _Leaf(reader.take(_KEY_SIZE), reader.number(8))
    if kind > _LEAF or depth + len(prefix) >= _KEY_SIZE or not 0 < count <= _CAPACITY[kind]:
        _raise_malformed("a node of its tree is malformed")
    node = _Inner(prefix, kind)
    if kind == _NODE256:
        bits = reader.number(32)
        branches = [branch for branch in range(256) if bits >> branch & 1]
    elif kind == _NODE48:
        octets = _reverse_words(reader.take(256), 8)
        branches = [branch for branch in range(256) if octets[branch] != 0xFF]
        node.order = {branch: octets[branch] for branch in branches}
    else:
        branches = list(_reverse_words(reader.take(4 if kind == _NODE4 else 16), 4 if kind == _NODE4 else 8)[:count])
    if len(branches) != count or sorted(set(branches)) != branches:
        _raise_malformed("a node of its tree is malformed")
    for branch in branches:
        node.children[branch] = _parse_node(reader, depth + len(prefix) + 1)
    return node


def _parse_container(reader: _Reader) -> Container | None:
    present = reader.number(1)
    if not present:
        return None
    kind, count = reader.number(1), reader.number(4)
    if kind > ARRAY or present != 1 or not 0 < count <= _VALUES_MAX:
        _raise_malformed("a container is malformed")
    if kind == RUN:
        runs = reader.take(2)
        return Container(kind, count, runs + reader.take(4 * int.from_bytes(runs, "little")))
    return Container(kind, count, reader.take(_BITMAP_SIZE if kind == BITMAP else 2 * count))


def _reverse_words(octets: bytes, size: int) -> bytes:
    """Reverse the bytes of each word of `size` bytes, because branches are packed into big-endian words."""
    return b"".join(octets[at : at + size][::-1] for at in range(0, len(octets), size))


# ------------------------------------------------------------------------------------------------------------- writing


def _serialise(tree: _Tree) -> bytes:
    if tree.root is None:
        return b"\0"
    out = bytearray(b"\1")
    out += struct.pack("<q", sum(1 for _ in tree.leaves()))
    _write_node(tree.root, out)
    out += struct.pack("<i", 1) + _TRIMMED + struct.pack("<i", tree.capacity)
    for place in tree.places:
        out += b"\0" if place is None else struct.pack("<BBi", 1, place.kind, place.count) + place.payload
    out += bytes(tree.capacity - len(tree.places))
    out += struct.pack("<qii", tree.containers, 0, len(tree.places) - 1)
    return bytes(out)


def _write_node(node: _Inner | _Leaf, out: bytearray) -> None:
    if isinstance(node, _Leaf):
        out += struct.pack("<BHB", _LEAF, 0, 0) + node.key + struct.pack("<q", node.place)
        return
    branches = sorted(node.children)
    out += struct.pack("<BHB", node.kind, len(branches), len(node.prefix)) + node.prefix
    if node.kind == _NODE256:
        out += sum(1 << branch for branch in branches).to_bytes(32, "little")
    elif node.kind == _NODE48:
        out += _reverse_words(bytes(node.order.get(branch, 0xFF) for branch in range(256)), 8)
    else:
        size = 4 if node.kind == _NODE4 else 16
        out += _reverse_words(bytes(branches).ljust(size, b"\0"), min(size, 8))
    for branch in branches:
        _write_node(node.children[branch], out)
