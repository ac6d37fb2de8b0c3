"""What is left of work that has ended, as the kernel, the ledgers and Mesos say."""

import contextlib
import http.client
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from isolator.agent.agent_api import TERMINAL
from isolator.gpus.ledger import Ledger
from mesos_gpu.local import leftovers
from mesos_gpu.local.processes import Process
from tests.soak.evidence import Line, by_number
from tests.soak.judge import Told, repeated
from tests.soak.load import Item
from tests.soak.rig import Rig, environments

_STAY: Final = ("gpu-monitor", "gpu-keeper")  # what begins the ids of executors that need not end


def left_over(rig: Rig) -> Iterator[str]:
    """What is there that must not be when no work is left: one line for each thing.

    Raises:
        OSError, http.client.HTTPException, AssertionError: A witness does not answer.
    """
    for name, pid in rig.evidence.held("cards").items():
        yield f"card: process {pid} holds slot {name}"
    for name, pid in rig.evidence.held("run").items():
        yield f"process: {pid} is at work {name}"
    yield from _claims(rig)
    executors = list(in_mesos(rig.mesos()))
    yield from (each for each in executors if each)
    yield from _monitors(rig)
    yield from _processes(rig)
    yield from _cgroups(rig)
    yield from _mounts(rig)


def _claims(rig: Rig) -> Iterator[str]:
    for number in range(1, len(rig.cards) + 1):
        path = rig.stack.directory / "nodes" / str(number) / "ledger.sqlite"
        if path.exists():
            ledger = Ledger(path)
            for holding in ledger.holdings():
                yield f"claim: node {number}: {holding.task} has {', '.join(holding.gpus) or 'no card'}"
            for trace in ledger.cards():
                yield f"share: node {number}: {trace.kind} {trace.what} of {trace.gpu}"


def in_mesos(state: dict[str, Any]) -> Iterator[str]:
    """What a master that has this state has of tasks and reservations, though nothing runs but monitors."""
    for framework in state["frameworks"]:
        if framework["used_resources"]["gpus"]:
            yield f"gpus: Mesos has {framework['used_resources']['gpus']:g} in use"
        for task in framework["tasks"]:
            if not task["id"].startswith("gpu-monitor") and not _is_only_listed(task):
                yield f"task: Mesos has {task['id']}, {task['state']}"
    if len(state["frameworks"]) != 1:
        yield f"framework: Mesos has {len(state['frameworks'])}"
    for agent in state["slaves"]:
        if agent.get("reserved_resources"):
            yield f"reservation: {agent['hostname']} has {agent['reserved_resources']}"


def _is_only_listed(task: dict[str, Any]) -> bool:
    """Whether it has ended, and the master heard an earlier update of it, held up on its way, after the last one: then
    the acknowledgement of the last one changes nothing there, and the task is listed until its agent registers anew."""
    statuses = task["statuses"]
    return task["state"] in TERMINAL and bool(statuses) and statuses[-1]["state"] not in TERMINAL


def _monitors(rig: Rig) -> Iterator[str]:
    """Nodes whose monitors were not started from what lies there now, by what these say."""
    for node in rig.leading_scheduler().get("/v1/upgrade")["nodes"]:
        program = node["program"]
        if program is None or program["digest"] != rig.program.digest or node["replaced_now"]:
            yield f"monitor: {node['hostname']} runs another program: {node['problem'] or node['outdated']}"


def _processes(rig: Rig) -> Iterator[str]:
    """Processes of tasks, by what Mesos and we put into the environments of all; those of monitors may stay."""
    directory = f"{rig.stack.directory}/"
    for pid, environment in environments():
        ours = environment.get("MESOS_SANDBOX", environment.get("MESOS_DIRECTORY", "")).startswith(directory)
        executor = environment.get("MESOS_EXECUTOR_ID", environment.get("MESOS_TASK_ID", ""))
        if ours and not executor.startswith(_STAY):
            with contextlib.suppress(OSError):
                command = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                yield f"process: {pid} of {executor}: {command[:100]}"


def _cgroups(rig: Rig) -> Iterator[str]:
    """Cgroups of containers that no executor has which the agent says it has."""
    for agent in rig.cluster.agents:
        known = _containers(agent)
        roots = leftovers.cgroups([agent.cgroup_root])
        for path in roots:
            names = path.parts[path.parts.index(agent.cgroup_root) + 1 :]
            if names and names[0] not in (*known, "mesos", "mesos_executors.slice"):
                yield f"cgroup: {path}"


def _containers(agent: Process) -> set[str]:
    state = agent.get("/state")
    executors = [each for framework in state["frameworks"] for each in framework["executors"]]
    return {each["container"] for each in executors}


def _mounts(rig: Rig) -> Iterator[str]:
    """Mounts in what belongs to tasks."""
    for point in {*leftovers.mounts(rig.stack.directory), *rig.machines.mounts}:
        if "/sandbox" in point or "/containers/" in point or "/runs/" in point:
            yield f"mount: {point}"


def told(rig: Rig, items: Iterable[Item], lines: Iterable[Line]) -> dict[str, Told]:
    """What the platform says of the tasks of work that was done again.

    Raises:
        MesosGpuError, OSError, http.client.HTTPException, AssertionError: It does not answer.
    """
    of_each = by_number(lines)
    again = [item for item in items if item.job and repeated(of_each[item.number])]
    if not again:
        return {}
    states = _states(rig)
    made_room = set[str]()
    for item in again:
        tasks = rig.ask(lambda client, item=item: client.tasks(item.job), leader=True)  # type: ignore[misc]
        made_room.update(task["id"] for task in tasks if task["preempted_for"] is not None)
    return {task: Told(states.get(task, ""), task in made_room) for task in {*states, *made_room}}


def _states(rig: Rig) -> dict[str, str]:
    """Mesos' state of each task that its leading master or an agent remembers; what one has as finished, is."""
    known = [rig.mesos(), *(agent.get("/state") for agent in rig.cluster.agents)]
    states: dict[str, str] = {}
    for framework in (
        each for state in known for each in (*state["frameworks"], *state["completed_frameworks"])
    ):
        executors = (*framework.get("executors", ()), *framework.get("completed_executors", ()))
        for holder in (framework, *executors):
            for task in (*holder.get("tasks", ()), *holder.get("completed_tasks", ())):
                if states.get(task["id"]) != "TASK_FINISHED":
                    states[task["id"]] = task["state"]
    return states


def settled(look: Callable[[], Iterator[str]]) -> list[str]:
    """What a look sees; what a witness that does not answer says counts, too."""
    try:
        return list(look())
    except (OSError, http.client.HTTPException, AssertionError) as error:
        return [f"witness: {type(error).__name__}: {error}"]
