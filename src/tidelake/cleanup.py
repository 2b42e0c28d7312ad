"""Context managers for errors: undo what was begun, or turn an error of a decoder into a `FormatError`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from tidelake.errors import FormatError

__all__ = ["raise_as_damage", "undo_on_error"]


def undo_on_error(
    *undo: Callable[[], object], ignore: tuple[type[BaseException], ...] = ()
) -> AbstractContextManager[None]:
    """Call these functions in turn when the block ends with an error, an interrupt included; the error goes on.

    An error of one of these functions is raised instead, and the rest are not called, unless its type is in `ignore`.
    """
    return _Undo(undo, ignore)


class _Undo(AbstractContextManager[None]):
    # Not a generator: an interrupt could arrive between its steps, and nothing would be undone.
    __slots__ = ("_ignored", "_undo")

    def __init__(self, undo: tuple[Callable[[], object], ...], ignored: tuple[type[BaseException], ...]) -> None:
        self._undo, self._ignored = undo, ignored

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            for undo in self._undo:
                with suppress(*self._ignored):
                    undo()


def raise_as_damage(make: Callable[[BaseException], FormatError]) -> AbstractContextManager[None]:
    """Raise what `make` returns instead of a decoder's error, which does not name the file; interrupts pass through."""
    return _Damage(make)


class _Damage(AbstractContextManager[None]):
    __slots__ = ("_make",)

    def __init__(self, make: Callable[[BaseException], FormatError]) -> None:
        self._make = make

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, FormatError):
            return
        # A panic in a Rust reader is not an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise self._make(error) from error
