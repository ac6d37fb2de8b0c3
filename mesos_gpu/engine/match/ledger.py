"""Ledger of a match: it reports each assignment to all books, and each rollback.

A match tracks what it has given out in several ways: the rest of offers, the index of nodes, the use of limits, the
jobs on each node. Each of these is a book. The tasks of a job are taken one by one under a checkpoint; if one of them
finds no place, all are rolled back, and every book is as it was before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from mesos_gpu.engine.queue.take import Take


@runtime_checkable
class Book(Protocol):
    """Record that follows from all assignments of a match."""

    def take(self, take: Take) -> None:
        """Count an assignment.

        Raises:
            ValueError: The book has too little left for it.
        """

    def undo(self, take: Take) -> None:
        """Undo an assignment, which is the latest one that counts."""


class Ledger:
    """Sequence of assignments, reported to all books in the order of their registration.

    A book may read those before it, which are up to date when it is called.

    Raises:
        TypeError: A book lacks a method, or is given twice.
    """

    def __init__(self, *books: Book) -> None:
        self._books: list[Book] = []
        self._takes: list[Take] = []
        self._marks = 0  # checkpoints that are open
        for book in books:
            self.register(book)

    @property
    def books(self) -> tuple[Book, ...]:
        """Books that are updated."""
        return tuple(self._books)

    @property
    def takes(self) -> tuple[Take, ...]:
        """Assignments that count, in their order."""
        return tuple(self._takes)

    def register(self, *books: Book) -> None:
        """Report assignments to more books from now on; these know the earlier ones already.

        Raises:
            TypeError: A book lacks a method, or is registered already.
        """
        for book in books:
            lacks = [name for name in ("take", "undo") if not callable(getattr(book, name, None))]
            if lacks or any(book is other for other in self._books):
                why = f"has no {' and no '.join(lacks)}" if lacks else "is registered already"
                raise TypeError(f"{type(book).__name__} is no book of a ledger: it {why}")
            assert not self._marks, "a book that comes under a checkpoint could not be rolled back"
            self._books.append(book)

    def take(self, take: Take) -> None:
        """Count an assignment in all books, or in none if one refuses it.

        Raises:
            ValueError: A book has too little left for it.
        """
        updated: list[Book] = []
        try:
            for book in self._books:
                book.take(take)
                updated.append(book)
        except BaseException:
            for book in updated:
                book.undo(take)
            raise
        self._takes.append(take)

    def rollback(self, mark: int) -> None:
        """Undo all assignments since a checkpoint, the latest first."""
        while len(self._takes) > mark:
            take = self._takes.pop()
            for book in self._books:
                book.undo(take)

    @contextmanager
    def checkpoint(self) -> Iterator["Trial"]:
        """Begin a trial; assignments of a trial that is not kept are rolled back at its end."""
        trial, mark = Trial(), len(self._takes)
        self._marks += 1
        try:
            yield trial
        finally:
            self._marks -= 1
            if not trial.kept:
                self.rollback(mark)


class Trial:
    """Decision on assignments since a checkpoint.

    Attributes:
        kept: Whether they stay counted.
    """

    kept = False

    def keep(self) -> None:
        """Keep the assignments when the trial ends."""
        self.kept = True
