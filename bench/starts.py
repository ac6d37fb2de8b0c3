"""What a launch costs of the processors, in starts of an empty interpreter: so runs on machines of any speed, and under
any load, can be compared."""

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
MAX_S: Final = 60.0  # of one launch by Mesos alone
_EMPTY: Final = ("-IS", "-c", "pass")


def empty_start_ms(rounds: int = ROUNDS, python: str = "") -> float:
    """CPU of an interpreter that does nothing, user's and system's, ms: the median of rounds, in each of which all
    cores start one, as launches take all cores, too. python: this one; by default the one that all here runs on."""
    command = [python or helpers.python(), *_EMPTY]
    took_s = []
    for _ in range(rounds):
        started = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
        for process in started:
            _, process.returncode, usage = os.wait4(process.pid, 0)
            took_s.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(took_s) * 1000


def by_name(ms_per_task: float) -> dict[str, float]:
    """What a task costs in starts of what `python3` is on PATH: a version manager's script takes several times as long
    as the interpreter that it stands for."""
    path = shutil.which("python3")
    if path is None:
        return {}
    start_ms = empty_start_ms(ROUNDS // 4, path)
    return {
        "python3_on_path_cpu_ms": round(start_ms, 1),
        "python3_on_path_starts_per_task": round(ms_per_task / start_ms, 2),
    }


class Used(NamedTuple):
    """CPU that a cluster has used, seconds, as /proc has it.

    Attributes:
        containers: Of what the agents have started, and that has ended: helpers, executors, tasks, and theirs.
        agents, masters, scheduler: Of themselves.
    """

    containers: float
    agents: float
    masters: float
    scheduler: float

    @classmethod
    def of(cls, stack: Stack) -> Self:
        """Until now."""
        import psutil

        agents = [psutil.Process(agent.pid).cpu_times() for agent in stack.cluster.agents]
        masters = [psutil.Process(master.pid).cpu_times() for master in stack.cluster.masters]
        scheduler = psutil.Process(stack.scheduler.pid).cpu_times()
        return cls(
            sum(each.children_user + each.children_system for each in agents),
            *(sum(each.user + each.system for each in kind) for kind in (agents, masters, [scheduler])),
        )

    def since(self, before: Self, tasks: int, empty_ms: float) -> dict[str, float]:
        """What each task cost since then.

        Args:
            before: Of the same cluster, earlier.
            tasks: That were launched and have ended meanwhile.
            empty_ms: As of `empty_start_ms`.
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
    """How many the agents have: the processes that they have started."""
    import psutil

    return sum(len(psutil.Process(agent.pid).children()) for agent in stack.cluster.agents)


def await_containers(stack: Stack, number: int) -> None:
    """Wait until no more than so many are left: the last executors have ended, and their agents know what they used."""
    poll("the last executors end", lambda: containers(stack) <= number)


def of_mesos_alone(stack: Stack, containers_each: int) -> dict[str, float]:
    """What a container costs in which Mesos itself runs `true`, without an executor and a scheduler, ms: its agent's
    part, and the helper's with the shell. Its command executor, which the embedded distribution lacks, would come on
    top."""
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
