"""What happens in a soak: small acts, each with a number that decides its details, so that a list of them can be played
again."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

#: Kinds of load and how often each comes.
LOAD: Final = {
    "job": 12, "burst": 4, "gang": 3, "share": 6, "urgent": 2, "app": 2, "scale": 2, "destroy": 1, "endless": 1,
    "kill": 2, "drain": 1, "sick": 1,
}  # fmt: skip
KILLS: Final = {
    "kill scheduler": 6, "kill standby": 6, "kill executor": 3, "kill monitor": 3, "kill keeper": 5, "kill agent": 6,
    "kill master": 6, "kill zookeeper": 6,
}  # fmt: skip
OTHERS: Final = {
    "pause scheduler": 2, "pause master": 1, "pause agent": 1, "pause zookeeper": 1, "zookeepers down": 1,
    "cut master-masters": 1, "cut master-agent": 1, "cut master-scheduler": 1, "cut agent-scheduler": 1,
    "cut agent-agent": 1, "cut agent-masters": 1, "cut scheduler-masters": 1, "slow": 1, "lose": 1, "wipe agent": 1,
}  # fmt: skip
FAULTS: Final = {**KILLS, **OTHERS}
DOWN: Final = "zookeepers down"
EVERY: Final = 4  # epochs
MORE: Final = 3  # times as often as in others come faults that last in the epochs that are for them
#: Faults of one machine without hosts of its own, and with one master.
SMALL: Final = ("kill scheduler", "kill executor", "kill monitor", "kill keeper", "kill agent", "kill master")
#: What the soak itself does wrong, so that it is seen to be noticed.
PLANTED: Final = ("planted double", "planted lost", "planted process", "planted cgroup")
_LASTS_S: Final = {
    "drain": (2, 6),
    "sick": (3, 6),
    "cut": (2, 14),
    "pause": (2, 9),
    "slow": (4, 10),
    "lose": (4, 10),
}


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

    def with_acts(self, acts: Iterable[Act]) -> "Story":
        """This story with other acts."""
        return Story(self.seed, self.epoch, self.small, tuple(acts))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        acts = [asdict(act) for act in self.acts]
        said = {"version": 1, "seed": self.seed, "epoch": self.epoch, "small": self.small, "acts": acts}
        path.write_text(json.dumps(said, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: It is no story of this version; the message names the file.
        """
        try:
            said = json.loads(path.read_text())
            if said.pop("version") != 1:
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
        faults: Kinds with their weights.
        down_s: For how long all servers of ZooKeeper are down.
    """

    lasts_s: float = 100.0
    load_every_s: float = 1.0
    fault_every_s: float = 1.1
    faults: Mapping[str, int] = field(default_factory=lambda: FAULTS)
    down_s: float = 60.0


def story_of(seed: int, epoch: int, plan: Plan, small: bool) -> Story:
    """The acts of an epoch, by its seed and number alone.

    In the first and third of four only processes are killed, so that it is seen how long each takes to recover. Nothing
    goes on without ZooKeeper: in the fourth all of it is down for the second half, and no other fault comes then.
    """
    chance = random.Random(f"{seed}.{epoch}")
    faults = {kind: often for kind, often in plan.faults.items() if kind != DOWN}
    half = DOWN in plan.faults and (epoch % EVERY == 0 or not faults)
    if epoch % EVERY == 2:
        faults = {kind: often if kind in KILLS else MORE * often for kind, often in faults.items()}
    elif epoch % 2 and faults.keys() & KILLS.keys():
        faults = {kind: often for kind, often in faults.items() if kind in KILLS}
    until_s = plan.lasts_s / 2 if half else plan.lasts_s
    acts = _drawn(chance, LOAD, plan.load_every_s, 0.0, plan.lasts_s)
    acts += _drawn(chance, faults, plan.fault_every_s, 3.0, until_s) if faults else []
    if half:
        acts.append(Act(DOWN, chance.randrange(1 << 30), until_s, plan.down_s))
    return Story(seed, epoch, small, tuple(sorted(acts, key=lambda act: act.at_s)))


def _drawn(
    chance: random.Random, weights: Mapping[str, int], every_s: float, from_s: float, until_s: float
) -> list[Act]:
    kinds, often = list(weights), list(weights.values())
    acts, at_s = [], from_s + chance.uniform(0, every_s)
    while at_s < until_s:
        kind = chance.choices(kinds, often)[0]
        shortest, longest = _LASTS_S.get(kind.split()[0], (0, 0))
        lasts_s = round(chance.uniform(shortest, longest), 1)
        acts.append(Act(kind, chance.randrange(1 << 30), round(at_s, 2), lasts_s))
        at_s += chance.uniform(0.5, 1.5) * every_s
    return acts


def told(acts: Sequence[Act]) -> str:
    """A story for people: one line for each act."""
    lasting = [f" for {act.lasts_s:g} s" if act.lasts_s else "" for act in acts]
    return "\n".join(
        f"  {act.at_s:6.2f} s  {act.kind}{more}" for act, more in zip(acts, lasting, strict=True)
    )
