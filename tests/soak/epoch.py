"""An epoch: acts are played on the cluster, then all is left to settle, and judged."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.local import leftovers
from mesos_gpu.local.processes import poll
from tests.soak import witness
from tests.soak.acts import DOWN, FAULTS, LOAD, PLANTED, QUIET, Act, Story
from tests.soak.evidence import WORK, Line
from tests.soak.faults import Faults, Injected
from tests.soak.judge import Finding, Verdict, judge
from tests.soak.load import Excuse, Item, Load
from tests.soak.rig import Rig
from tests.soak.tally import Row, Tally
from tests.soak.work import SLOTS_OF_CARD

_SETTLE_S: Final = 150.0
_ALONE_S: Final = 60.0  # for which a fault that is to be alone waits for the end of what the one before did
_AMONG_OTHERS_S: Final = 12.0  # for which others do
_FIND_S: Final = 5.0  # for somebody to be there whom it can be done to
_SHORTLY_S: Final = 2.0
_LOOK_S: Final = 0.05
NOTHING: Final = "nothing"  # in the table: no fault


@dataclass(slots=True)
class Shot:
    """A fault that was injected.

    Attributes:
        act: Which.
        injected: What it did.
        begin: When, in seconds since the epoch.
        tasks: How many were under way then.
        healed_at: When it was undone; None: not yet.
        probe: The small job that was submitted then.
    """

    act: Act
    injected: Injected
    begin: float
    tasks: int
    healed_at: float | None = None
    probe: Item | None = None


@dataclass(slots=True)
class Outcome:
    """What became of an epoch."""

    verdict: Verdict
    shots: list[Shot] = field(default_factory=list)
    asked: int = 0
    leaked: int = 0


class Epoch:
    """A story that is played once, on a rig that runs."""

    clean_s = 90.0  # for what ended work leaves to be removed

    def __init__(self, rig: Rig, story: Story, first: int, tell: Callable[[str], None]) -> None:
        """Nothing happens yet.

        Args:
            rig: Where.
            story: What.
            first: The number of its first piece of work.
            tell: Is told what happens.
        """
        self._rig, self._story, self._tell = rig, story, tell
        self.load, self._faults = Load(rig, first), Faults(rig)
        self._shots: list[Shot] = []
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._excuses: list[Excuse] = []
        self._planted: list[subprocess.Popen[bytes]] = []
        self._findings: list[Finding] = []
        self._cgroup: Path | None = None
        self._waiting: list[Act] = []
        self._began_at, self._opened_at, self._shot_at = 0.0, time.time(), 0.0

    def run(self) -> Outcome:
        """Play it, and judge."""
        self._opened_at = time.time()
        try:
            self._see_nothing_wrong()
            self._began_at = time.monotonic()
            for act in self._story.acts:
                self._wait_until(act.at_s)
                if act.kind == DOWN:
                    self._waiting.clear()  # nothing else goes wrong then
                    self._play(act)
                elif act.kind in FAULTS:
                    self._waiting.append(act)
                    self._play_waiting()
                else:
                    self._play(act)
            self._play_rest()
            while self._undo:
                self._wait_until(self._undo[0][0])
            self._settle()
            return self._judged()
        finally:
            self.load.close()
            self._faults.heal_all()
            for process in self._planted:
                process.kill()
                process.wait()
            if self._cgroup is not None:
                self._cgroup.rmdir()

    @property
    def ends(self) -> dict[int, float]:
        """When the latest task of each piece of work wrote that it was done, in seconds since the epoch."""
        self._rig.evidence.lines()
        return self._rig.evidence.ends

    def _now(self) -> float:
        return time.monotonic() - self._began_at

    def _wait_until(self, at_s: float) -> None:
        """Undo meanwhile what is to be undone, and go on with faults that wait for each other."""
        while True:
            self._play_waiting()
            while self._undo and self._undo[0][0] <= self._now():
                self._undo.pop(0)[1]()
            left_s = at_s - self._now()
            if left_s <= 0:
                return
            time.sleep(min(_LOOK_S, left_s))

    def _play_waiting(self) -> None:
        """The next faults, once the small job after those before has ended, or for too long has not: else nothing would
        run that they could harm. What finds nobody waits, and is left out at last."""
        patience_s = _ALONE_S if self._story.alone else _AMONG_OTHERS_S
        if not self._waiting or not (self._has_recovered() or self._now() - self._shot_at > patience_s):
            return
        at_once = [act for act in self._waiting if act.at_s == self._waiting[0].at_s]
        for act in at_once:
            late = self._now() - max(act.at_s, self._shot_at) > _FIND_S
            if self._inject(act) or late:
                self._waiting.remove(act)

    def _play_rest(self) -> None:
        """The faults that still wait for each other, as long as one is waited for."""
        deadline = self._now() + _ALONE_S
        while self._waiting and self._now() < deadline:
            self._wait_until(self._now() + _LOOK_S)
        self._waiting.clear()

    def _has_recovered(self) -> bool:
        probe = self._shots[-1].probe
        return probe is not None and probe.number in self.ends

    def _undo_at(self, at_s: float, undo: Callable[[], None]) -> None:
        self._undo = sorted([*self._undo, (at_s, undo)], key=lambda pair: pair[0])

    def _play(self, act: Act) -> None:
        if act.kind in LOAD:
            undo = self.load.do(act)
            if undo:
                self._undo_at(self._now() + act.lasts_s, undo)
        elif act.kind in PLANTED:
            self._plant(act)
        else:
            self._inject(act)

    def _inject(self, act: Act) -> bool:
        """Whether there was anything that it could be done to."""
        begin, tasks = time.time(), len(self._rig.evidence.held("run"))
        injected = self._faults.inject(act)
        if injected is None:
            return False
        shot, self._shot_at = Shot(act, injected, begin, tasks), self._now()
        self._shots.append(shot)
        self._tell(f"{self._now():6.1f} s  {act.kind}: {injected.what}, {tasks} under way")
        wiped = self._rig.hostname(injected.agent) if injected.wiped and injected.agent is not None else ""
        self._excuses.append(Excuse(begin, time.time(), injected.again, wiped=wiped))
        if act.lasts_s:
            self._undo_at(self._now() + act.lasts_s, lambda: self._heal(shot))
        else:
            self._heal(shot)
        return True

    def _heal(self, shot: Shot) -> None:
        shot.injected.heal()
        shot.healed_at = time.time()
        shot.probe = self.load.probe(shot.injected.agent)

    def _see_nothing_wrong(self) -> None:
        """How long a small job takes before anything goes wrong: what recovery times are to be held against."""
        shot = Shot(Act(NOTHING, 0, 0.0), Injected("nothing"), time.time(), 0)
        self._shots.append(shot)
        self._heal(shot)
        try:
            poll("a job before any fault", lambda: shot.probe and shot.probe.number in self.ends, _SETTLE_S)
        except MesosGpuError as error:
            self._findings.append(Finding("trouble", error.what))

    def _plant(self, act: Act) -> None:
        """Do what a broken platform would do."""
        card, what = self._rig.cards[0][0], act.kind.removeprefix("planted ")
        evidence = self._rig.evidence.directory
        environment = {"PATH": os.environ["PATH"]}
        if what == "lost":
            self.load.plant("silent")
        elif what == "again":
            self._plant_again(self.load.plant("plain", preemptible=True))
        elif what == "double":
            words = [sys.executable, "-IS", str(WORK), str(evidence), "0", str(SLOTS_OF_CARD), "8", "silent"]
            holder = {**environment, "NVIDIA_VISIBLE_DEVICES": card}
            self._planted.append(subprocess.Popen(words, env=holder))
        elif what == "process":
            mark = {"MESOS_SANDBOX": f"{self._rig.stack.directory}/x", "MESOS_EXECUTOR_ID": "planted"}
            self._planted.append(subprocess.Popen(["sleep", "600"], env={**environment, **mark}))
        elif what == "cgroup":
            roots = [top / self._rig.cluster.agents[0].cgroup_root for top in leftovers.hierarchies()]
            self._cgroup = next(root for root in roots if root.is_dir()) / "planted"
            self._cgroup.mkdir(exist_ok=True)

    def _plant_again(self, item: Item) -> None:
        """A task of that work says that it was done, which nobody ended; later another one does."""
        line = Line("end", time.time(), item.number, 0, "planted.1", ())
        with (self._rig.evidence.directory / "said").open("a") as file:
            file.write(json.dumps(asdict(line)) + "\n")

    def _settle(self) -> None:
        """Heal all, and wait for the end of all work."""
        self._faults.heal_all()
        self.load.settle(_SETTLE_S)
        try:
            for item in self.load.items:  # they may hold what apps wait for
                if item.kind == "endless" and item.job and not item.unwanted:
                    self.load.end(item)
            self._see_instances()
            for app in list(self.load.apps.values()):
                self.load.destroy(app)
            self.load.settle(_SETTLE_S)
            poll("the end of all work", lambda: self._has_ended(*self.load.items), _SETTLE_S, 0.3)
        except MesosGpuError as error:
            self._findings.append(Finding("trouble", f"{error.what}\n{self._rig.tails()}"))

    def _see_instances(self) -> None:
        """See that as many processes of each app hold its locks as it is to have instances."""
        for app in self.load.apps.values():
            try:
                poll(
                    f"app {app.number}: {app.instances} instances",
                    lambda app=app: self._rig.evidence.running(app.number) == app.instances,  # type: ignore[misc]
                    _SETTLE_S,
                    0.2,
                )
            except MesosGpuError:
                running = self._rig.evidence.running(app.number)
                text = f"app {app.number} has {running} instances that run, and is to have {app.instances}"
                self._findings.append(Finding("lost", text, app.number))

    def _judged(self) -> Outcome:
        left = self._left() or self._unusable()
        lines = [line for line in self._rig.evidence.lines() if line.at >= self._opened_at]
        told = witness.told(self._rig, self.load.items, lines)
        wrong = {shot.act.kind for shot in self._shots} - {NOTHING}
        quiet = bool(wrong) and wrong <= QUIET
        verdict = judge(self.load.items, lines, [*self._excuses, *self.load.excuses], told, quiet)
        verdict.findings += self._findings
        verdict.findings += [Finding("left", each) for each in left]
        verdict.findings[:0] = [Finding("trouble", each) for each in sorted(set(self.load.troubles))]
        leaked = sum(each.startswith(("card:", "claim:", "gpus:")) for each in left)
        return Outcome(verdict, self._shots, len(self.load.items), leaked)

    def _has_ended(self, *items: Item) -> bool:
        self.load.look()
        return all(item.state for item in items if item.job)

    def _unusable(self) -> list[str]:
        """Whether a job that needs all cards at once cannot have them: somebody holds one who should not."""
        item = self.load.everything()
        with contextlib.suppress(MesosGpuError):
            poll("all cards", lambda: item.number in self.ends, self.clean_s, 0.2)
            self.load.settle(_SETTLE_S)
            poll("its end", lambda: self._has_ended(item), self.clean_s, 0.2)
            return self._left()
        self.load.end(item)
        self.load.settle(_SETTLE_S)
        item.state, gpus = "killed", self._rig.ask(lambda client: client.gpus(), leader=True)
        held = [f"{gpu['uuid']} ({gpu['health']}) is held by {gpu['task_id'] or 'nobody'}" for gpu in gpus]
        return [f"card: a job that needs all of them did not run: {', '.join(held)}"]

    def _left(self) -> list[str]:
        """What is left after a time in which all of it could be removed."""
        deadline = time.monotonic() + self.clean_s
        while left := witness.settled(lambda: witness.left_over(self._rig)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.3)
        return left


def tally_up(tally: Tally, outcome: Outcome, load: Load, ends: Mapping[int, float]) -> None:
    """Add an epoch to the table; `ends`: when each piece of work was done."""
    tally.epochs += 1
    tally.asked += outcome.asked
    tally.done += outcome.verdict.done
    tally.again.update(outcome.verdict.again)
    tally.taken += load.taken
    asked_at = {item.number: item.asked_at for item in load.items}
    for shot in outcome.shots:
        row = tally.row(shot.act.kind)
        row.times += shot.injected.times
        row.tasks += shot.tasks
        row.leaked += outcome.leaked
        _note_recovery(row, shot, outcome.shots, ends)
    for finding in outcome.verdict.of("lost", "doubled", "card"):
        begin, is_lost = asked_at.get(finding.number, 0.0), finding.what == "lost"
        tally.lost += is_lost
        tally.doubled += not is_lost
        for kind in {shot.act.kind for shot in outcome.shots if (shot.healed_at or begin) >= begin}:
            tally.row(kind).lost += is_lost
            tally.row(kind).doubled += not is_lost
    tally.leaked += outcome.leaked


def _note_recovery(row: Row, shot: Shot, shots: Sequence[Shot], ends: Mapping[int, float]) -> None:
    if not shot.probe or not shot.healed_at or shot.probe.number not in ends:
        return
    end = ends[shot.probe.number]
    took_s = end - shot.healed_at
    is_alone = not any(_beside(other, shot.healed_at, end) for other in shots if other is not shot)
    (row.recovery_s if is_alone else row.among_others_s).append(took_s)


def _beside(other: Shot, begin: float, end: float) -> bool:
    """Whether another fault lasted, or came, between two times or shortly before."""
    return other.begin < end and (other.healed_at or end) > begin - _SHORTLY_S
