"""`python -m tests.soak --minutes 30`, `python -m tests.soak --replay FILE`."""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.remote.machines import LIBRARY, NO_CLOCKS
from tests.soak.acts import FAULTS, SMALL, Act, Plan, Story, sets_clock, story_of, told
from tests.soak.epoch import Epoch, Outcome, tally_up
from tests.soak.rig import Rig
from tests.soak.shrink import shrink
from tests.soak.tally import Tally

_FAILED: Final = 1
_STOPPED: Final = 130
_MAX_RUNS: Final = 8
_ORDER: Final = ("card", "doubled", "disturbed", "trouble", "left", "lost")
_STORY: Final = "build/soak-story.json"


@contextlib.contextmanager
def running(small: bool, kinds: Iterable[str]) -> Iterator[Rig]:
    """A cluster in a directory of its own, where tasks of all users see it. `kinds`: of what is to happen."""
    place = "/srv" if os.geteuid() == 0 and os.path.isdir("/srv") else None
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-soak-", dir=place) as directory:
        Path(directory).chmod(0o755)
        with Rig(Path(directory), small, clocks=any(map(sets_clock, kinds))) as rig:
            yield rig


class Soak:
    """Epoch after epoch on one cluster, until the time is over or something is wrong."""

    def __init__(
        self, seed: int, plan: Plan, small: bool, tell: Callable[[str], None], keep: Path | None = None
    ) -> None:
        """Nothing runs yet. `keep`: a directory for logs of epochs in which something is wrong."""
        self._seed, self._plan, self._small, self._tell, self._keep = seed, plan, small, tell, keep
        self.tally = Tally()
        self.keep_all = False  # logs, also of epochs in which all is well
        self._first = 1

    def run(
        self, minutes: float, epochs: int | None = None, go_on: bool = False
    ) -> tuple[Story, Outcome] | None:
        """Play until the time is over, or, unless it is to go on, something is wrong; the first story that failed."""
        failed = None
        ends_at = time.monotonic() + 60 * minutes
        with running(self._small, self._plan.faults) as rig:
            number = 0
            while time.monotonic() < ends_at and (epochs is None or number < epochs):
                number += 1
                so_far = {kind: row.times for kind, row in self.tally.rows.items()}
                story = story_of(self._seed, number, self._plan, self._small, so_far)
                outcome = self.play(rig, story)
                if outcome.verdict.findings:
                    failed = failed or (story, outcome)
                    if not go_on:
                        break
                    for line in lines_of(outcome):
                        self._tell(line)
        return failed

    def play(self, rig: Rig, story: Story) -> Outcome:
        """An epoch, which is added to the table."""
        epoch = Epoch(rig, story, self._first, self._tell)
        began_at = time.monotonic()
        outcome = epoch.run()
        if (outcome.verdict.findings or self.keep_all) and self._keep is not None:
            rig.keep(self._keep / f"epoch-{story.epoch}", lines_of(outcome))
        self._first = epoch.load.next_number
        tally_up(self.tally, outcome, epoch.load, epoch.ends)
        self.tally.switches, self.tally.deposed = dict(rig.switches), rig.deposed
        took_s = time.monotonic() - began_at
        self._tell(
            f"epoch {story.epoch}: {outcome.asked} pieces of work, {len(outcome.shots)} faults, "
            f"{len(outcome.verdict.findings)} findings, {took_s:.0f} s"
        )
        return outcome


def lines_of(outcome: Outcome, most: int = 40) -> list[str]:
    """What is wrong, the worst first."""
    ordered = sorted(outcome.verdict.findings, key=lambda each: _ORDER.index(each.what))
    return [f"WRONG: {each.what}: {each.text}" for each in ordered[:most]]


def fails_again(story: Story, tell: Callable[[str], None]) -> Callable[[Sequence[Act]], bool]:
    """Plays acts of a story on a cluster of their own, and says whether something is wrong then, too."""

    def fails(acts: Sequence[Act]) -> bool:
        soak = Soak(story.seed, Plan(), story.small, lambda _: None)
        with running(story.small, (act.kind for act in acts)) as rig:
            wrong = bool(soak.play(rig, story.with_acts(acts)).verdict.findings)
        tell(f"  {len(acts)} of {len(story.acts)} acts: {'wrong, too' if wrong else 'all is well'}")
        return wrong

    return fails


def tell_failure(
    story: Story, outcome: Outcome, path: Path, most_runs: int, tell: Callable[[str], None]
) -> None:
    """Say what is wrong, and of which acts the shortest story is that was seen to fail."""
    path.parent.mkdir(parents=True, exist_ok=True)
    story.save(path)
    for line in lines_of(outcome):
        tell(line)
    if most_runs:
        tell(f"making the story of {len(story.acts)} acts shorter, with at most {most_runs} clusters")
        acts, runs = shrink(story.acts, fails_again(story, tell), most_runs)
        story = story.with_acts(acts)
        story.save(path)
        tell(f"after {runs} clusters, seed {story.seed}, epoch {story.epoch}:")
        tell(told(story.acts))
    tell(f"play it again: {sys.executable} -m tests.soak --replay {path}")


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="for how long; the last epoch is played to its end"
    )
    parser.add_argument("--seed", type=int, default=None, help="of all that is random; default: the time")
    parser.add_argument("--epochs", type=int, default=None, help="at most so many")
    parser.add_argument("--epoch-s", type=float, default=Plan().lasts_s, help="how long an epoch's acts take")
    parser.add_argument(
        "--fault-every-s", type=float, default=Plan().fault_every_s, help="from one to the next, on average"
    )
    parser.add_argument("--times", type=int, default=Plan().times, help="that each process is to be killed")
    parser.add_argument(
        "--faults", help="only these kinds, with commas between them; else all but those of clocks"
    )
    parser.add_argument("--small", action="store_true", help="one master, two agents, no hosts of their own")
    parser.add_argument("--go-on", action="store_true", help="also when something is wrong")
    parser.add_argument(
        "--keep-all", action="store_true", help="logs of each epoch, and not of those that fail alone"
    )
    parser.add_argument(
        "--shrink",
        type=int,
        metavar="N",
        help="clusters on which a failure may be played; default: 8, or 0 of --replay",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play this story, and nothing else")
    parser.add_argument(
        "--story",
        type=Path,
        default=Path(_STORY),
        help="where a failure is written; logs come to a directory beside it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there, too")
    return parser.parse_args(words)


def faults_of(names: str | None, small: bool) -> tuple[str, ...]:
    """Kinds of faults."""
    there = SMALL if small else FAULTS
    chosen = names.split(",") if names is not None else [name for name in there if not sets_clock(name)]
    if unknown := [name for name in chosen if name and name not in there]:
        raise SystemExit(f"--faults: {', '.join(unknown)}: choose of {', '.join(there)}")
    if not LIBRARY.exists() and (clocks := [*filter(sets_clock, chosen)]):
        raise SystemExit(f"{', '.join(clocks)} {NO_CLOCKS}")
    return tuple(filter(None, chosen))


def main(words: Sequence[str] | None = None) -> int:
    """Run it, until the end or a signal, and remove all of it; the exit code."""
    asked = arguments(sys.argv[1:] if words is None else words)
    for number in (signal.SIGTERM, signal.SIGINT):  # also where a shell started it in the background
        signal.signal(number, lambda *_: sys.exit(_STOPPED))

    def tell(text: str) -> None:
        print(text, flush=True)

    story = Story.load(asked.replay) if asked.replay else None
    seed = story.seed if story else asked.seed if asked.seed is not None else int(time.time())
    small = story.small if story else asked.small
    faults = faults_of(asked.faults, small)
    plan = Plan(asked.epoch_s, fault_every_s=asked.fault_every_s, faults=faults, times=asked.times)
    soak = Soak(seed, plan, small, tell, asked.story.with_suffix(""))
    soak.keep_all = asked.keep_all
    tell(f"seed {seed}")
    if story:
        with running(small, (act.kind for act in story.acts)) as rig:
            outcome = soak.play(rig, story)
        failed = (story, outcome) if outcome.verdict.findings else None
    else:
        failed = soak.run(asked.minutes, asked.epochs, asked.go_on)
    tell(soak.tally.text())
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(soak.tally.as_json(), indent=1) + "\n")
    if failed:
        most = asked.shrink if asked.shrink is not None else 0 if story else _MAX_RUNS
        tell_failure(*failed, asked.story, most, tell)
    return _FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
