"""What happens in a soak: small acts, each with a number that decides its details, so that a list of them can be played
again."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

#: Kinds of load and how often each comes.
LOAD: Final = {
    "job": 12, "burst": 4, "gang": 3, "share": 8, "urgent": 2, "app": 2, "scale": 2, "destroy": 1, "endless": 1,
    "kill": 2, "drain": 1, "sick": 1,
}  # fmt: skip
#: Kinds of processes that are killed, and about how many at once.
KILLS: Final = {
    "kill scheduler": 1, "kill standby": 1, "kill executor": 1, "kill monitor": 2, "kill keeper": 1, "kill agent": 1,
    "kill master": 1, "kill zookeeper": 1,
}  # fmt: skip
OTHERS: Final = {
    "pause scheduler": 2, "pause master": 1, "pause agent": 1, "pause zookeeper": 1, "zookeepers down": 1,
    "cut master-masters": 1, "cut master-agent": 1, "cut master-scheduler": 1, "cut agent-scheduler": 1,
    "cut agent-agent": 1, "cut agent-masters": 1, "cut scheduler-masters": 1, "cut standby-masters": 1,
    "cut scheduler-standby": 1, "slow": 1, "lose": 1, "wipe agent": 1, "reboot agent": 2, "clock scheduler": 2,
    "clock master": 1, "clock agent": 2, "roll monitors": 1,
}  # fmt: skip
FAULTS: Final = (*KILLS, *OTHERS)
QUIET: Final = frozenset({"roll monitors"})  # of which no task may know
DOWN: Final = "zookeepers down"
EVERY: Final = 4  # epochs
_RARER: Final = 2  # are faults where most of them last: else nothing runs that they could harm
_BURSTS: Final = (1, 1, 2, 3)  # faults at one moment
_MANY: Final = (2, 3, 4)
#: Faults of one machine without hosts of its own, and with one master.
SMALL: Final = ("kill scheduler", "kill executor", "kill monitor", "kill keeper", "kill agent", "kill master")
#: What the soak itself does wrong, so that it is seen to be noticed.
PLANTED: Final = ("planted double", "planted lost", "planted again", "planted process", "planted cgroup")
_CLOCK: Final = "clock "  # before the kind of process whose clock is set
NOTHING_YET: Final[Mapping[str, int]] = {}
_VERSION: Final = 2  # of a story's file
_LASTS_S: Final = {
    "drain": (2, 6),
    "sick": (3, 6),
    "cut": (2, 14),
    "pause": (6, 12),  # a session with ZooKeeper ends after four
    "slow": (4, 10),
    "lose": (4, 10),
    "reboot": (1, 8),
    "clock": (4, 12),
    "roll": (15, 25),  # about as long as it takes on three nodes
}


def sets_clock(kind: str) -> bool:
    """Whether what happens is that a clock is set."""
    return kind.startswith(_CLOCK)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that happens.

    Attributes:
        kind: Which.
        pick: Decides what it is done to.
        at_s: When, from the beginning of its epoch.
        lasts_s: Until it is undone; 0: it is not, or at once.
    """

    kind: str
    pick: int
    at_s: float
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Story:
    """An epoch: all that is needed to play it again."""

    seed: int
    epoch: int
    small: bool
    acts: tuple[Act, ...]
    alone: bool = False  # a fault waits as long as it takes until what the one before did is over

    def with_acts(self, acts: Iterable[Act]) -> "Story":
        """This story with other acts."""
        return replace(self, acts=tuple(acts))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        acts = [asdict(act) for act in self.acts]
        said = {**asdict(self), "version": _VERSION, "acts": acts}
        path.write_text(json.dumps(said, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: It is no story of this version; the message names the file.
        """
        try:
            said = json.loads(path.read_text())
            if said.pop("version") != _VERSION:
                raise ValueError("another version")
            acts = tuple(Act(**act) for act in said.pop("acts"))
            story = cls(**said, acts=acts)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} is no story of a soak: {error}") from error
        known = {*LOAD, *FAULTS, *PLANTED}
        if unknown := sorted({act.kind for act in acts} - known):
            raise ValueError(f"{path} is no story of a soak: it has {', '.join(unknown)}")
        return story


@dataclass(frozen=True, slots=True)
class Plan:
    """How much happens in an epoch.

    Attributes:
        lasts_s: The epoch, until it is left to settle.
        load_every_s, fault_every_s: From one act to the next, on average.
        faults: Kinds.
        times: How often each process is to be killed in all epochs: what was killed less often is killed more.
        down_s: For how long all servers of ZooKeeper are down.
    """

    lasts_s: float = 120.0
    load_every_s: float = 1.2
    fault_every_s: float = 1.5
    faults: Sequence[str] = FAULTS
    times: int = 60
    down_s: float = 60.0


def story_of(
    seed: int, epoch: int, plan: Plan, small: bool, so_far: Mapping[str, int] = NOTHING_YET
) -> Story:
    """The acts of an epoch, by its seed and number, and how often each fault came before.

    Of four epochs each has its own faults: in the first one process after another is killed, each when the one before
    has recovered; in the second hosts are cut off, slow, paused and wiped, too; in the third several processes are
    killed at once. Nothing goes on without ZooKeeper: in the fourth all of it is down for the second half, and no other
    fault comes then.
    """
    chance = random.Random(f"{seed}.{epoch}")
    turn = epoch % EVERY
    half = DOWN in plan.faults and (turn == 0 or plan.faults == (DOWN,))
    until_s = plan.lasts_s / 2 if half else plan.lasts_s
    acts = _drawn(chance, LOAD, plan.load_every_s, 0.0, plan.lasts_s)
    weights = _weights(plan, so_far, more_others=turn == 2, kills_alone=turn in (1, 3))
    if weights:
        bursts = {1: (1,), 3: _MANY}.get(turn, _BURSTS)
        every_s = plan.fault_every_s * (_RARER if turn == 2 else 1)
        acts += _drawn(chance, weights, every_s, 3.0, until_s, bursts)  # not all of which come to be played
    if half:
        acts.append(Act(DOWN, chance.randrange(1 << 30), until_s, plan.down_s))
    return Story(seed, epoch, small, tuple(sorted(acts, key=lambda act: act.at_s)), alone=turn == 1)


def _weights(
    plan: Plan, so_far: Mapping[str, int], *, more_others: bool, kills_alone: bool
) -> dict[str, float]:
    """How often each kind is to come; kills, all together, as often as others, or three times."""
    missing = {
        kind: max(plan.times - so_far.get(kind, 0), plan.times / 25, 1) / KILLS[kind]
        for kind in plan.faults
        if kind in KILLS
    }
    others: dict[str, float] = {kind: OTHERS[kind] for kind in plan.faults if kind in OTHERS and kind != DOWN}
    if not missing or not others or kills_alone:
        return missing or others
    share = sum(others.values()) * (1 if more_others else 3) / sum(missing.values())
    return {kind: each * share for kind, each in missing.items()} | others


def _drawn(
    chance: random.Random,
    weights: Mapping[str, float],
    every_s: float,
    from_s: float,
    until_s: float,
    bursts: Sequence[int] = (1,),
) -> list[Act]:
    kinds, often = list(weights), list(weights.values())
    acts, at_s = [], from_s + chance.uniform(0, every_s)
    while at_s < until_s:
        at_once = chance.choice(bursts)
        several = dict.fromkeys(chance.choices(kinds, often, k=at_once))  # of one kind one
        for kind in several:
            shortest, longest = _LASTS_S.get(kind.split()[0], (0, 0))
            lasts_s = round(chance.uniform(shortest, longest), 1)
            acts.append(Act(kind, chance.randrange(1 << 30), round(at_s, 2), lasts_s))
        at_s += chance.uniform(0.5, 1.5) * every_s * at_once
    return acts


def told(acts: Sequence[Act]) -> str:
    """A story for people: one line for each act."""
    lasting = [f" for {act.lasts_s:g} s" if act.lasts_s else "" for act in acts]
    return "\n".join(
        f"  {act.at_s:6.2f} s  {act.kind}{more}" for act, more in zip(acts, lasting, strict=True)
    )
