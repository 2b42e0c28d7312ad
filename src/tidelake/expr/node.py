"""What all parts of an expression share: the nodes below, and the columns they look at.

Nodes are frozen values. Whatever looks through a whole tree does it with `walk`, which does not recurse, so that a tree
may be as deep as a program builds it.
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
        """The column this node itself looks at, if it does."""
        return None

    def columns(self) -> frozenset[str]:
        """The names of the columns it looks at."""
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
