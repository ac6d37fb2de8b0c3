"""CPU time of a launch, also in starts of an empty interpreter, which compares machines of different speed and load."""

import os
import shutil
import statistics
import subprocess
import uuid
from typing import Final, NamedTuple, Self

from mesos_gpu.libmesos import helpers
from mesos_gpu.local.processes import Agent, get_json, poll
from mesos_gpu.local.stack import Stack

ROUNDS = 20
MAX_S: Final = 60.0  # seconds of one launch by Mesos alone
_EMPTY: Final = ("-IS", "-c", "pass")


def empty_start_ms(rounds: int = ROUNDS, python: str = "") -> float:
    """Return the CPU milliseconds of the start of an empty interpreter: the median of rounds.

    In each round all cores start one, as launches use all cores, too.

    Args:
        rounds: Number of rounds.
        python: Path of the interpreter, or empty for the one that tasks are launched with.
    """
    command = [python or helpers.python(), *_EMPTY]
    took_s = []
    for _ in range(rounds):
        started = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
        for process in started:
            _, process.returncode, usage = os.wait4(process.pid, 0)
            took_s.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(took_s) * 1000


def by_name(ms_per_task: float) -> dict[str, float]:
    """Return the cost of a task in starts of the `python3` on PATH.

    A script of a version manager takes several times as long as the interpreter that it starts.
    """
    path = shutil.which("python3")
    if path is None:
        return {}
    start_ms = empty_start_ms(ROUNDS // 4, path)
    return {
        "python3_on_path_cpu_ms": round(start_ms, 1),
        "python3_on_path_starts_per_task": round(ms_per_task / start_ms, 2),
    }


class Used(NamedTuple):
    """CPU seconds that the processes of a cluster have used, from /proc.

    Attributes:
        containers: Seconds of ended children of agents: helpers, executors, tasks and their descendants.
        agents: Seconds of the agents themselves.
        masters: Seconds of the masters.
        scheduler: Seconds of the scheduler.
    """

    containers: float
    agents: float
    masters: float
    scheduler: float

    @classmethod
    def of(cls, stack: Stack) -> Self:
        """Read the seconds used so far."""
        import psutil

        agents = [psutil.Process(agent.pid).cpu_times() for agent in stack.cluster.agents]
        masters = [psutil.Process(master.pid).cpu_times() for master in stack.cluster.masters]
        scheduler = psutil.Process(stack.scheduler.pid).cpu_times()
        return cls(
            sum(each.children_user + each.children_system for each in agents),
            *(sum(each.user + each.system for each in kind) for kind in (agents, masters, [scheduler])),
        )

    def since(self, before: Self, tasks: int, empty_ms: float) -> dict[str, float]:
        """Return the cost of one task since an earlier reading.

        Args:
            before: Earlier reading of the cluster.
            tasks: Number of tasks that were launched and have ended meanwhile.
            empty_ms: CPU milliseconds of the start of an empty interpreter, from `empty_start_ms`.
        """
        ms = [(now - then) * 1000 / tasks for now, then in zip(self, before, strict=True)]
        return {
            "cpu_ms_per_task": round(sum(ms), 1),
            "empty_start_cpu_ms": round(empty_ms, 1),
            **{
                f"{name}_cpu_ms_per_task": round(each, 1) for name, each in zip(self._fields, ms, strict=True)
            },
            "container_empty_starts_per_task": round(ms[0] / empty_ms, 2),
            "empty_starts_per_task": round(sum(ms) / empty_ms, 2),
        }


def containers(stack: Stack) -> int:
    """Return the number of containers: the child processes of the agents."""
    import psutil

    return sum(len(psutil.Process(agent.pid).children()) for agent in stack.cluster.agents)


def await_containers(stack: Stack, number: int) -> None:
    """Wait until at most `number` containers are left, so that agents account for the CPU time of the others."""
    poll("the last executors end", lambda: containers(stack) <= number)


def of_mesos_alone(stack: Stack, containers_each: int) -> dict[str, float]:
    """Return the CPU milliseconds of a container in which Mesos runs `true` without an executor and a scheduler.

    The figures are the agent's part, and that of helper and shell. Mesos' command executor, which the embedded
    distribution lacks, would add to them.
    """
    agents, resident = stack.cluster.agents, containers(stack)
    before = Used.of(stack)
    for _ in range(containers_each):
        for agent in agents:
            _launch(agent)
        await_containers(stack, resident)
    number, after = containers_each * len(agents), Used.of(stack)
    return {
        "containers_cpu_ms": round((after.containers - before.containers) * 1000 / number, 1),
        "agents_cpu_ms": round((after.agents - before.agents) * 1000 / number, 1),
    }


def _launch(agent: Agent) -> None:
    resources = [
        {"name": name, "type": "SCALAR", "scalar": {"value": value}}
        for name, value in (("cpus", 0.1), ("mem", 32.0))
    ]
    container = {
        "container_id": {"value": f"bench-{uuid.uuid4().hex}"},
        "command": {"value": "true"},
        "resources": resources,
    }
    call = {"type": "LAUNCH_CONTAINER", "launch_container": container}
    get_json(agent.ip, agent.port, "/api/v1", MAX_S, call=call)
