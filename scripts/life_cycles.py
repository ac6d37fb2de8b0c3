"""docs/development.md's life cycles, drawn from the tables and functions that decide them.

`python -m scripts.life_cycles docs/development.md` writes them anew between their marks.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from isolator.executor import life
from isolator.shares.mps import life as mps_life
from mesos_gpu.engine.apps.deploying import SHOWN as OF_JOB
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.rollout import ActionKind, InstanceState
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.job_state import JobState
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.health import CardHealth, Reading
from mesos_gpu.model.tasks.task import ENDED, LIVE, TABLE, Action, TaskState
from mesos_gpu.policy.apps.rollout.plan import plan
from mesos_gpu.policy.gpus.health import HealthSettings, advance, unknown, unread
from mesos_gpu.policy.tasks.gang import SHOWN as OF_TASK

Arrow = tuple[str, str]
_GPU: Final = Gpu(GpuId("GPU"), "model", 1, 0, "0000:00:00.0")
_READINGS: Final[Mapping[str, Reading | None]] = {
    "clean reading": Reading(_GPU),
    "soft fault": Reading(_GPU, unreadable="an error"),
    "fault that asks for a reset": Reading(_GPU, reset_required="a reset"),
    "fault that asks for a new card": Reading(_GPU, row_remapping_failed=True),
    "off the bus": Reading(_GPU, lost=True),
    "not in the survey": None,
}
_PROBE_S: Final = 1.0
_DEPTH: Final = 7  # surveys in a row: enough for the longest way, from sick to ok


def task() -> str:
    """Draw a launch of a job: `model.tasks.task.TABLE`. What is stale or illegal is left out."""
    lines = ["stateDiagram-v2", "    [*] --> launched", "    state live {"]
    inside = [
        (old, new) for old, new in TABLE if old in LIVE and new in LIVE and old is not new and TABLE[old, new]
    ]
    lines += [f"        {old.value} --> {new.value}" for old, new in inside]
    lines.append("    }")
    for new in TaskState:
        asked = {TABLE.get((old, new)) for old in LIVE}
        if new not in LIVE and len(asked) == 1 and (actions := asked.pop()):
            lines.append(f"    live --> {new.value}: {_words(actions)}")
    for (old, new), actions in TABLE.items():
        if old in LIVE:
            shared = new in LIVE or len({TABLE.get((each, new)) for each in LIVE}) == 1
        else:  # a word of a task that is not live: what follows is the same for all that say that it runs
            shared = new in LIVE and new is not TaskState.RUNNING
        if actions and not shared:
            lines.append(f"    {old.value} --> {'live' if new in LIVE else new.value}: {_words(actions)}")
    lines += [f"    {state.value} --> [*]" for state in ENDED]
    return "\n".join(lines)


def _words(actions: Iterable[Action]) -> str:
    asked = set(actions)
    return ", ".join(action.value for action in Action if action in asked)


def instance() -> str:
    """An instance of an app: the table of tasks, seen through the states that jobs and instances show."""
    names = {state: _shown(state) for state in LIVE}
    names[TaskState.ABANDONED] = names[TaskState.LOST] = _of_job(JobState.PENDING)
    names |= dict.fromkeys((TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED), "[*]")
    arrows: dict[Arrow, None] = {("[*]", "waiting"): None, ("waiting", names[TaskState.LAUNCHED]): None}
    for (old, new), actions in TABLE.items():
        if old in LIVE and new in names and actions and names[old] != names[new]:
            arrows[names[old], names[new]] = None
    return _diagram(dict.fromkeys(arrows, ()))


def _shown(state: TaskState) -> str:
    shown = OF_JOB[OF_TASK[state]]
    if shown is InstanceState.STAGING and state is not TaskState.LAUNCHED:
        shown = InstanceState.STARTING
    return shown.value


def _of_job(state: JobState) -> str:
    return OF_JOB[state].value


def card() -> str:
    """A card as it is reported: what `policy.gpus.health.advance` makes of readings, tried in all orders."""
    settings = HealthSettings()
    arrows: dict[Arrow, dict[str, None]] = {}
    seen: set[tuple[object, ...]] = set()
    edge = [(unread(_GPU), 1.0)]
    for _ in range(_DEPTH):
        following = []
        for record, now in edge:
            for label, after, at in _surveys(record, now, settings):
                old, new = record.gpu.health, after.gpu.health
                if old is not new:
                    arrows.setdefault((old.value, new.value), {}).setdefault(label)
                key = (after.state, after.gpu.health, after.bad, after.clean, after.latched)
                if key not in seen:
                    seen.add(key)
                    following.append((after, at))
        edge = following
    return _diagram({("[*]", Health.UNKNOWN.value): (), **_least(arrows)})


def _surveys(
    record: CardHealth, now: float, settings: HealthSettings
) -> Iterable[tuple[str, CardHealth, float]]:
    soon, later = now + _PROBE_S, now + settings.recheck_most_s + _PROBE_S
    for label, reading in _READINGS.items():
        yield label, advance(record, reading, soon, settings), soon
    quiet = advance(record, _READINGS["clean reading"], later, settings)
    yield "no fault for the recheck time", quiet, later
    yield "a process without a claim", advance(record, Reading(_GPU), soon, settings, stranger="1"), soon
    yield "the probe fails", unknown(record, "no answer", soon), soon


def _least(arrows: Mapping[Arrow, Iterable[str]]) -> Mapping[Arrow, tuple[str, ...]]:
    """Without "no fault for the recheck time" where a clean reading does as well."""
    return {
        arrow: tuple(
            each
            for each in labels
            if each != "no fault for the recheck time" or "clean reading" not in labels
        )
        for arrow, labels in arrows.items()
    }


def deployment() -> str:
    """A deployment: the steps of `policy.apps.rollout.plan.plan` for a change of each kind at once."""
    old = Group("/", (App("/gone", cmd="a"), App("/changed", cmd="a"), App("/scaled", cmd="a")))
    new = Group(
        "/",
        (
            App("/changed", cmd="b"),
            App("/new", cmd="a", dependencies=("/changed",)),
            replace(App("/scaled", cmd="a"), instances=2),
        ),
    )
    made = plan(old, new)
    lines = ["stateDiagram-v2", "    [*] --> step1: apps are locked"]
    for number, step in enumerate(made.steps, start=1):
        lines.append(f"    step{number}: {'; '.join(f'{each.kind.value} {each.app.id}' for each in step)}")
        done = f"step{number + 1}" if number < len(made.steps) else "[*]"
        lines.append(f"    step{number} --> {done}: each app is as the step says")
        lines.append(f"    step{number} --> rollback: DELETE")
    assert {each.kind for step in made.steps for each in step} == set(ActionKind)
    return "\n".join([*lines, "    rollback --> [*]: a deployment of its own"])


def executor() -> str:
    """A task in its executor: `isolator.executor.life.TABLE`, without what changes no state."""
    return life.mermaid()


def mps() -> str:
    """A daemon of MPS: `isolator.shares.mps.life.TABLE`, without what changes no state."""
    arrows: dict[Arrow, dict[str, None]] = {("[*]", mps_life.State.STARTING.value): {}}
    for (old, event), move in mps_life.TABLE.items():
        if move.to is not old:
            arrows.setdefault((old.value, move.to.value), {})[event.value] = None
    return _diagram(arrows)


def _diagram(arrows: Mapping[Arrow, Iterable[str]]) -> str:
    lines = ["stateDiagram-v2"]
    for (old, new), labels in arrows.items():
        words = ", ".join(labels)
        lines.append(f"    {old} --> {new}" + (f": {words}" if words else ""))
    return "\n".join(lines)


DRAWN: Final[Mapping[str, Callable[[], str]]] = {
    "task": task,
    "executor": executor,
    "instance": instance,
    "card": card,
    "mps": mps,
    "deployment": deployment,
}


def rendered(text: str) -> str:
    """A document with each life cycle as it is now, between `<!-- life cycle: NAME -->` and `<!-- end -->`.

    Raises:
        LookupError: A life cycle has no place in it.
    """
    for name, draw in DRAWN.items():
        mark = f"<!-- life cycle: {name} -->"
        block = f"{mark}\n```mermaid\n{draw()}\n```\n<!-- end -->"
        before, begin, rest = text.partition(f"{mark}\n")
        _, end, after = rest.partition("<!-- end -->")
        if not (begin and end):
            raise LookupError(f"the document has no place for the life cycle of {name}: {mark}")
        text = before + block + after
    return text


def main(path: Path) -> None:
    """Write the life cycles of a document anew."""
    path.write_text(rendered(path.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
