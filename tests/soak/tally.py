"""The table at the end: what each fault did."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Row:
    """All times that one kind of fault was injected.

    Attributes:
        times: How often; of kills: how many processes.
        tasks: That were under way then, all times together.
        lost, doubled: Pieces of work that were asked for before one of them, and were lost or done twice.
        leaked: Cards that were not given back after an epoch with it.
        recovery_s: From each to the end of a small job that was submitted right then, or when it was healed; only of
            those that no other fault was beside meanwhile.
        among_others_s: The same of the rest.
    """

    times: int = 0
    tasks: int = 0
    lost: int = 0
    doubled: int = 0
    leaked: int = 0
    recovery_s: list[float] = field(default_factory=list)
    among_others_s: list[float] = field(default_factory=list)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The least value that a share of all do not exceed; None: there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


@dataclass(slots=True)
class Tally:
    """Sums over all epochs."""

    rows: dict[str, Row] = field(default_factory=dict)
    epochs: int = 0
    asked: int = 0  # pieces of work
    lost: int = 0
    doubled: int = 0
    leaked: int = 0
    done: int = 0
    again: Counter[str] = field(default_factory=Counter)  # tasks whose work was done again, by why
    taken: int = 0  # of those that were refused for want of ZooKeeper or a leader
    switches: dict[str, int] = field(default_factory=dict)
    deposed: int = 0  # leaders that were no more when they woke, or were heard again

    def row(self, kind: str) -> Row:
        """The row of a fault."""
        return self.rows.setdefault(kind, Row())

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs; times in seconds."""
        rows = {
            kind: {
                **asdict(row),
                "p50_s": quantile(row.recovery_s, 0.5),
                "p99_s": quantile(row.recovery_s, 0.99),
            }
            for kind, row in self.rows.items()
        }
        return {**asdict(self), "rows": rows, "again": dict(self.again)}

    def text(self) -> str:
        """All of it, for people."""
        once = ("p50 s", "p99 s")
        head = ("fault", "times", "tasks", "lost", "doubled", "leaked", "alone", *once, "others", *once)
        lines = [head, *((kind, *_cells(row)) for kind, row in sorted(self.rows.items()))]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        table = [
            "  ".join(
                cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        led = ", ".join(f"{count} of {kind}" for kind, count in self.switches.items())
        kept = f"{self.taken} kept though refused"
        why = "".join(f", {count} {reason}" for reason, count in sorted(self.again.items()))
        again = f"{self.again.total()} tasks of them again{why}"
        ended = f"{self.epochs} epochs, {self.asked} pieces of work, {self.done} done, {again}"
        wrong = f"{self.lost} lost, {self.doubled} doubled, {self.leaked} cards leaked"
        fenced = f"{self.deposed} schedulers that lived were deposed"
        return "\n".join([*table, f"{ended}, {kept}; {wrong}; switches of leaders: {led}; {fenced}"])


def _cells(row: Row) -> tuple[str, ...]:
    counts = (row.times, row.tasks, row.lost, row.doubled, row.leaked)
    return (*map(str, counts), *_times(row.recovery_s), *_times(row.among_others_s))


def _times(recovery_s: Sequence[float]) -> tuple[str, ...]:
    quantiles = [quantile(recovery_s, share) for share in (0.5, 0.99)]
    return (str(len(recovery_s)), *("-" if each is None else f"{each:.1f}" for each in quantiles))
