"""What is true of an epoch: which work was lost, which was done twice, and which was done again with good reason."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.soak.evidence import Line
from tests.soak.load import Item

What = Literal["lost", "doubled", "card", "left", "trouble"]
_AFTER_S: Final = (
    10.0  # what a task wrote is believed to be told of within that time, unless somebody was killed
)


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why work may be done again: a fault after which nobody could tell that it had been done, or somebody who wanted
    the place at that moment.

    Attributes:
        begin, end: When, in seconds since the epoch.
        tasks: Whose executors were killed.
        cards: All that ran on these was ended; empty: nothing was.
        wiped: A host that forgot what it had not told yet, perhaps since it was cut off long before; "": none did.
    """

    begin: float
    end: float
    tasks: frozenset[str] = frozenset()
    cards: frozenset[str] = frozenset()
    wiped: str = ""

    def covers(self, line: Line, members: int = 1) -> bool:
        """Whether the end of that work, of so many tasks, may have been told to nobody. A gang's launch ends with the
        first of its executors, which may have been killed before its command began."""
        killed = self.tasks if members == 1 else {_launch_of(task) for task in self.tasks}
        if (line.task if members == 1 else _launch_of(line.task)) in killed:
            return True
        if self.wiped and line.host == self.wiped and line.at <= self.end + _AFTER_S:
            return True
        return bool(self.cards & set(line.cards)) and self.begin - _AFTER_S <= line.at <= self.end + _AFTER_S


def _launch_of(task: str) -> str:
    """The launch of a member of a gang: its id is that without the rank."""
    return task.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    what: What
    text: str
    number: int = 0  # of the work; 0: of none


@dataclass(slots=True)
class Verdict:
    """About an epoch."""

    findings: list[Finding] = field(default_factory=list)
    done: int = 0  # pieces of work
    again: int = 0  # members whose work was done again, with an excuse

    def of(self, *kinds: What) -> list[Finding]:
        """Findings of these kinds."""
        return [each for each in self.findings if each.what in kinds]


def judge(items: Sequence[Item], lines: Iterable[Line], excuses: Sequence[Excuse]) -> Verdict:
    """Hold what was asked for against what tasks wrote."""
    verdict = Verdict()
    by_number: Mapping[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_number[line.number].append(line)
        if line.word == "double":
            verdict.findings.append(
                Finding("card", f"{line.task} got {', '.join(line.cards)}, which others held", line.number)
            )
        if line.word == "twice":
            text = f"work {line.number} ran as {line.task} while another of its tasks ran"
            verdict.findings.append(Finding("doubled", text, line.number))
    for item in items:
        _judge_item(item, by_number[item.number], excuses, verdict)
    return verdict


def _judge_item(item: Item, lines: Sequence[Line], excuses: Sequence[Excuse], verdict: Verdict) -> None:
    name = f"work {item.number} ({item.kind}, {item.job or 'never accepted'})"
    ends: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.word == "end":
            ends[line.rank].append(line)
    if not item.job and not lines:
        return  # nobody said yes to it, and who asked for it knows
    if not item.unwanted:
        if item.state != "finished":
            verdict.findings.append(
                Finding("lost", f"{name}: {item.state or 'no end'} {item.why}", item.number)
            )
        elif len(ends) < item.members:
            text = f"{name}: finished, and {len(ends)} of {item.members} tasks wrote that they had"
            verdict.findings.append(Finding("lost", text, item.number))
        else:
            verdict.done += 1
    elif item.state not in ("finished", "killed"):
        verdict.findings.append(
            Finding("lost", f"{name}: asked to end: {item.state or 'no end'}", item.number)
        )
    earlier = [line for all_ends in ends.values() for line in sorted(all_ends, key=lambda line: line.at)[:-1]]
    if not earlier:
        return
    # The members of a gang begin again together: what is true of one of them excuses all.
    if item.preemptible or any(excuse.covers(line, item.members) for excuse in excuses for line in lines):
        verdict.again += len(earlier)
        return
    tasks = ", ".join(f"{line.task} at {line.at:.2f}" for all_ends in ends.values() for line in all_ends)
    verdict.findings.append(Finding("doubled", f"{name} was done more than once: {tasks}", item.number))
