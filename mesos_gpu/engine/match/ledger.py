"""The ledger of a match: the only one that tells books what is taken, and what is given back.

A match knows in several ways what it has given out already: what is left of offers, the index on which jobs are placed,
the use of queues' limits, who is where. Each of these is a book. A job's tasks are taken one by one under a checkpoint;
if one of them finds no place, all are rolled back, and every book is as it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from mesos_gpu.engine.queue.take import Take


@runtime_checkable
class Book(Protocol):
    """What follows from all that a match has taken."""

    def take(self, take: Take) -> None:
        """Count it in.

        Raises:
            ValueError: There is not as much.
        """

    def undo(self, take: Take) -> None:
        """Be as before it; it is the latest of those that count."""


class Ledger:
    """Tells all of its books of each take and of each rollback, in the order in which they were registered.

    A book may read those before it: they are up to date when it is told.
    """

    def __init__(self, *books: Book) -> None:
        """Begin with nothing taken.

        Raises:
            TypeError: One of them cannot be told.
        """
        self._books: list[Book] = []
        self._takes: list[Take] = []
        self._marks = 0  # checkpoints that are open
        for book in books:
            self.register(book)

    @property
    def books(self) -> tuple[Book, ...]:
        """The books that are told."""
        return tuple(self._books)

    @property
    def takes(self) -> tuple[Take, ...]:
        """All that stands, in the order in which it was taken."""
        return tuple(self._takes)

    def register(self, *books: Book) -> None:
        """Tell these from now on; what was taken before they know already.

        Raises:
            TypeError: One of them cannot be told, or is told already.
        """
        for book in books:
            lacks = [name for name in ("take", "undo") if not callable(getattr(book, name, None))]
            if lacks or any(book is other for other in self._books):
                why = f"has no {' and no '.join(lacks)}" if lacks else "is registered already"
                raise TypeError(f"{type(book).__name__} is no book of a ledger: it {why}")
            assert not self._marks, "a book that comes under a checkpoint could not be rolled back"
            self._books.append(book)

    def take(self, take: Take) -> None:
        """Count it in everywhere, or nowhere.

        Raises:
            ValueError: There is not as much.
        """
        told: list[Book] = []
        try:
            for book in self._books:
                book.take(take)
                told.append(book)
        except BaseException:
            for book in told:
                book.undo(take)
            raise
        self._takes.append(take)

    def rollback(self, mark: int) -> None:
        """Undo all that was taken since a checkpoint, the latest first."""
        while len(self._takes) > mark:
            take = self._takes.pop()
            for book in self._books:
                book.undo(take)

    @contextmanager
    def checkpoint(self) -> Iterator["Trial"]:
        """Begin a trial: unless it is kept, all that was taken in it is rolled back."""
        trial, mark = Trial(), len(self._takes)
        self._marks += 1
        try:
            yield trial
        finally:
            self._marks -= 1
            if not trial.kept:
                self.rollback(mark)


class Trial:
    """Whether what is taken since a checkpoint stands."""

    kept = False

    def keep(self) -> None:
        """Let it stand."""
        self.kept = True
