"""What is true of an epoch: which work was lost, which was done twice, and which was done again with good reason."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.soak.evidence import Line, by_number
from tests.soak.load import Excuse, Item

What = Literal["lost", "doubled", "disturbed", "card", "left", "trouble"]
Reason = Literal["wiped", "executor killed", "drained or sick", "made room"]
_AFTER_S: Final = 10.0  # within which what a task wrote is told, unless its host is cut off
_HIDDEN_S: Final = 30.0  # within which it is also then: a cut lasts less (acts.py)
_FINISHED: Final = "TASK_FINISHED"


@dataclass(frozen=True, slots=True)
class Told:
    """What the platform says of a task that wrote that its work was done.

    Attributes:
        state: Mesos', as a master or an agent remembers it; "": none does.
        made_room: Whether the scheduler ended it for another job.
    """

    state: str = ""
    made_room: bool = False


NOTHING_TOLD: Final[Mapping[str, Told]] = {}


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
    again: Counter[Reason] = field(default_factory=Counter)  # members whose work was done again, by why

    def of(self, *kinds: What) -> list[Finding]:
        """Findings of these kinds."""
        return [each for each in self.findings if each.what in kinds]


def judge(
    items: Sequence[Item],
    lines: Sequence[Line],
    excuses: Sequence[Excuse],
    told: Mapping[str, Told] = NOTHING_TOLD,
    quiet: bool = False,
) -> Verdict:
    """Hold what was asked for against what tasks wrote. `told`: by the id of the task; of those whose work was done
    again it must have all that is known. `quiet`: whether nothing went wrong that a task may know of."""
    verdict = Verdict()
    of_each = by_number(lines)
    for line in lines:
        if line.word == "double":
            verdict.findings.append(
                Finding("card", f"{line.task} got {', '.join(line.cards)}, which others held", line.number)
            )
        if line.word == "twice":
            text = f"work {line.number} ran as {line.task} while another of its tasks ran"
            verdict.findings.append(Finding("doubled", text, line.number))
    for item in items:
        _judge_item(item, of_each[item.number], verdict)
        excused = _Excused(item, excuses, told)
        _judge_repeats(item, of_each[item.number], excused, verdict)
        if quiet:
            _judge_begins(item, of_each[item.number], excused, verdict)
    return verdict


def repeated(lines: Iterable[Line]) -> list[Line]:
    """The lines of one piece of work by which a task said that it was done, where another did so later."""
    ends: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.word == "end":
            ends[line.rank].append(line)
    return [line for of_rank in ends.values() for line in sorted(of_rank, key=lambda line: line.at)[:-1]]


def _judge_item(item: Item, lines: Sequence[Line], verdict: Verdict) -> None:
    name = f"work {item.number} ({item.kind}, {item.job or 'never accepted'})"
    ends = {line.rank for line in lines if line.word == "end"}
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


def _judge_repeats(item: Item, lines: Sequence[Line], excused: "_Excused", verdict: Verdict) -> None:
    wrong = []
    for line in repeated(lines):
        launch = [each for each in lines if excused.launch(each.task) == excused.launch(line.task)]
        reason = excused.reason(line, launch)
        if reason is None:
            wrong.append(
                f"{line.task} at {line.at:.2f} ({excused.told(line.task).state or 'unknown'} in Mesos)"
            )
        else:
            verdict.again[reason] += 1
    if wrong:
        text = f"work {item.number} ({item.kind}, {item.job}) was done again after {', '.join(wrong)}"
        verdict.findings.append(Finding("doubled", text, item.number))


def _judge_begins(item: Item, lines: Sequence[Line], excused: "_Excused", verdict: Verdict) -> None:
    """All that began has ended by itself, unless somebody asked for its end, took its cards or its place."""
    if item.unwanted or item.preemptible:
        return
    ended = {line.task for line in lines if line.word == "end"}
    for line in lines:
        if line.word == "begin" and line.task not in ended and not excused.lost_cards(line, lines):
            text = f"work {item.number} ({item.kind}, {item.job}) began as {line.task}, which did not end"
            verdict.findings.append(Finding("disturbed", text, item.number))


@dataclass(frozen=True, slots=True)
class _Excused:
    """Why a piece of work may be done again. The members of a gang begin again together, when one has ended: what is
    true of one excuses all, also of one that was killed before its command began."""

    item: Item
    excuses: Sequence[Excuse]
    all_told: Mapping[str, Told]

    def launch(self, task: str) -> str:
        """What all members of a gang have in common: the id of one without its rank."""
        return task if self.item.members == 1 else task.rpartition(".")[0]

    def told(self, task: str) -> Told:
        """What is known of a task."""
        return self.all_told.get(task, Told())

    def reason(self, done: Line, launch: Sequence[Line]) -> Reason | None:
        """Why the work of a task was done again; None: there is no reason.

        Args:
            done: Of the task, that it was done.
            launch: All lines of that launch.
        """
        if any(self._wiped(each, done) for each in self.excuses):
            return "wiped"
        states = {self.told(line.task).state for line in launch if line.word == "end"}
        if states == {_FINISHED} and self._is_whole(launch):
            return None  # Mesos knew that it was done, whatever went wrong besides
        tasks = {self.launch(task) for each in self.excuses for task in each.tasks}
        if self.launch(done.task) in tasks:
            return "executor killed"
        if any(self._took_cards(each, launch) for each in self.excuses):
            return "drained or sick"
        if any(self.told(line.task).made_room for line in launch):
            return "made room"
        return None

    def lost_cards(self, begun: Line, lines: Sequence[Line]) -> bool:
        """Whether a task may have been ended for its cards, or for those of another member of its launch."""
        launch = [line for line in lines if self.launch(line.task) == self.launch(begun.task)]
        return any(self._is_on(each, launch) and begun.at <= each.end + _AFTER_S for each in self.excuses)

    def _is_whole(self, launch: Sequence[Line]) -> bool:
        """Whether all members wrote that they were done."""
        return len({line.rank for line in launch if line.word == "end"}) == self.item.members

    def _took_cards(self, excuse: Excuse, launch: Sequence[Line]) -> bool:
        """Whether a member had such a card, or ran on such a host, and was done, or of a gang at work, about then."""
        times = [line.at for line in launch if line.word == "end" or self.item.members > 1]
        return (
            self._is_on(excuse, launch)
            and min(times) - _AFTER_S <= excuse.end
            and excuse.begin - _AFTER_S <= max(times)
        )

    @staticmethod
    def _is_on(excuse: Excuse, launch: Sequence[Line]) -> bool:
        return any(excuse.cards & set(line.cards) or line.host == excuse.drained != "" for line in launch)

    @staticmethod
    def _wiped(excuse: Excuse, done: Line) -> bool:
        is_near = excuse.begin - _HIDDEN_S <= done.at <= excuse.end + _AFTER_S
        return is_near and done.host == excuse.wiped != ""
