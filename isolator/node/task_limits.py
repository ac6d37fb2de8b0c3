"""Doctor's check that memory, CPUs and processes of tasks are limited."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

from isolator.confinement.limits import UNLIMITED, Amounts, limits_for, unlimited_of
from isolator.node.findings import Finding, Host, Level
from mesos_gpu.errors import MesosGpuError

LIMITS: Final = "limits"
#: Isolators of an agent, by the controller with which they limit containers.
_ISOLATORS: Final = {"memory": "cgroups/mem", "cpu": "cgroups/cpu"}
_TRIAL: Final = Amounts(memory_mib=64, cpus=1.0, cpu_limit=1.0)


def look_at_limits(host: Host, flags: Mapping[str, str] | None) -> Iterator[Finding]:
    """Yield the findings on limits: cgroups like those of a task are made, set and removed.

    Args:
        host: The host that is checked.
        flags: Flags of the host's Mesos agent; None if no agent answers.

    Raises:
        BadConfiguration: A setting of the host is wrong.
    """
    isolators = (flags or {}).get("isolation", "").split(",")
    by_agent = {controller for controller, isolator in _ISOLATORS.items() if isolator in isolators}
    is_off = host.env.get("MESOS_GPU_ISOLATION") == "off"
    lacking = sorted(({*_ISOLATORS} if is_off else unlimited_of(host.env)) - by_agent)
    if lacking:
        name = "MESOS_GPU_ISOLATION=off" if is_off else f"{UNLIMITED}={','.join(lacking)}"
        text = f"{name}: a task can use up the host's {' and '.join(lacking)}, so that others are ended or slowed down"
        yield Finding(LIMITS, Level.WARN, text, f"unset it where cgroups can be written by root, or give the agent "
                      f"--isolation={','.join(_ISOLATORS.values())}")  # fmt: skip
    if is_off or not host.real:
        return
    env = {**host.env, UNLIMITED: ",".join({*lacking, *by_agent})}
    try:
        limits = limits_for(f".doctor-{os.getpid()}", _TRIAL, env)
        try:
            limits.set_up()
        finally:
            for cgroup in limits.own():
                cgroup.remove()
    except MesosGpuError as error:
        yield Finding(LIMITS, Level.FAIL, f"no task starts: {error.what}", error.remedy)
        return
    held = [
        f"{each.controller} by {each.cgroup.version if each.cgroup is not None else 'RLIMIT_NPROC of its user'}"
        for each in limits.limits
    ]
    held += [f"{controller} by the agent" for controller in sorted(by_agent)]
    yield Finding(
        LIMITS, Level.OK, f"tasks are limited: {', '.join(held)}; a trial was made, set and removed"
    )
