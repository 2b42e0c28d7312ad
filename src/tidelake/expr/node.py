"""What all nodes of an expression have in common: children, and the columns that they read.

Nodes are frozen values. Code that visits a whole tree uses `walk`. It does not recurse: a program may chain thousands
of conditions with `|`, which makes a tree deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Iterator


class Node:
    """A part of an expression."""

    __slots__ = ()

    def children(self) -> tuple[Node, ...]:
        """The nodes directly below, in the order they are written."""
        return ()

    def reads(self) -> str | None:
        """The column that this node itself reads, or None."""
        return None

    def columns(self) -> frozenset[str]:
        """The names of all columns that the expression reads."""
        return frozenset(name for node in walk(self) if (name := node.reads()) is not None)


class Scalar(Node):
    """A value of a row."""

    __slots__ = ()


def walk(node: Node) -> Iterator[Node]:
    """The node and every node below it, outermost first."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(current.children()))
