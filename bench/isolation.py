"""`python -m bench isolation`: the time that isolation, and its denied ports, add to a launch."""

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from isolator.confinement.fence import Fence, fence_for, see_denied
from isolator.devices.cgroups import OWN_ROOT, Cgroup, Version, mounted
from isolator.devices.rules import DriverFacts, nvidia_devices, rules_of
from isolator.host import control_ports
from isolator.host.control_ports import Denial, metadata_denials
from isolator.host.port_ranges import PortGrant
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.client import Client
from mesos_gpu.errors import Unavailable
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack

RULE_SETS = 300
PORT_SETS = 100
NO_PORTS = "_no_ports"


@click.command()
@click.option("--jobs", default=60, show_default=True, type=click.IntRange(5), help="Jobs of each kind.")
@json_option
def isolation(jobs: int, as_json: bool) -> None:
    """Measure the rules of a task's cgroups, and one-GPU launches by kind of isolation.

    Kinds are isolation off, cgroup v1 and cgroup v2, each with and without denied ports; launches take turns.
    """
    if os.geteuid() != 0:
        raise Unavailable("isolation needs root", remedy="run it as root")
    there = sorted(mounted())
    result: dict[str, Any] = {version: _rules(version) for version in there}
    if "cgroup2" in there:
        result["ports"] = _ports()
    kinds = ("off", *(f"{version}{ports}" for version in there for ports in ("", NO_PORTS)))
    output.note(f"{jobs} launches each of: {', '.join(kinds)}")
    result["launch"] = _launches(jobs, kinds)
    if as_json:
        output.document(result)
        return
    rows = [
        (f"{group} {name}", value) for group, figures in result.items() for name, value in figures.items()
    ]
    output.table(("FIGURE", "VALUE"), rows, empty="")


def _rules(version: Version) -> dict[str, float]:
    """Return the milliseconds to set the device rules of an eight-card task on a cgroup, and to replace them."""
    facts = DriverFacts({"nvidia": 195, "nvidia-uvm": 509})
    sets = [rules_of(nvidia_devices(facts, range(start, start + 8))) for start in (0, 8)]
    root = mounted()[version] / OWN_ROOT
    first, next_ones = [], []
    for number in range(RULE_SETS):
        cgroup = Cgroup(version, root / f"bench-{os.getpid()}-{number}", own=True)
        cgroup.create()
        try:
            first.append(_ms(lambda made=cgroup: made.allow(sets[0])))  # type: ignore[misc]
            next_ones.append(_ms(lambda made=cgroup: made.allow(sets[1])))  # type: ignore[misc]
        finally:
            cgroup.remove()
    return {
        "set_up_p50_ms": round(statistics.median(first), 3),
        "set_up_p99_ms": round(sorted(first)[int(RULE_SETS * 0.99)], 3),
        "exchange_p50_ms": round(statistics.median(next_ones), 3),
    }


def _ports() -> dict[str, float]:
    """Return the milliseconds to make a cgroup with the denials of a task, and to verify them from inside."""
    denied = (*(Denial(port) for port in (5050, 5051, 8080)), *metadata_denials({}))
    grant = PortGrant(((31000, 32000),), ((31007, 31007),))
    made, seen = [], []
    for number in range(PORT_SETS):
        fence = fence_for(f"bench-{os.getpid()}-{number}", denied, grant=grant)
        assert fence is not None
        try:
            made.append(_ms(fence.set_up))
            seen.append(_seen_ms(fence))
        finally:
            fence.cgroup.remove()
    return {
        "set_up_p50_ms": round(statistics.median(made), 3),
        "set_up_p99_ms": round(sorted(made)[int(PORT_SETS * 0.99)], 3),
        "check_p50_ms": round(statistics.median(seen), 3),
    }


def _seen_ms(fence: Fence) -> float:
    """Return the milliseconds in which a child process inside the fence verifies it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        Path(fence.cgroup.path, "cgroup.procs").write_text("0")
        took = _ms(lambda: list(map(see_denied, fence.probes())))
        os.write(writer, str(took).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return float(text)


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _launches(jobs: int, kinds: tuple[str, ...]) -> dict[str, float]:
    """Return milliseconds from submission to RUNNING, on one cluster of each kind, by turns."""
    waits: dict[str, list[float]] = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-")))
        top.chmod(0o755)
        clients = {}
        for kind in kinds:
            given = {"MESOS_GPU_ISOLATION": kind.removesuffix(NO_PORTS)}
            if kind.endswith(NO_PORTS):
                given[control_ports.SETTING] = control_ports.OFF
            made = stack.enter_context(Stack(top / kind, [NodeSpec(1)], executor_environment=given))
            clients[kind] = stack.enter_context(Client(made.url))
        for client in clients.values():
            poll("the node reports", lambda asked=client: len(asked.gpus()) == 1, 60)  # type: ignore[misc]
        for _ in range(jobs):
            for kind, client in clients.items():
                waits[kind].append(_launch(client))
    medians = {kind: statistics.median(samples) for kind, samples in waits.items()}
    return {
        **{f"{kind}_p50_ms": round(value, 1) for kind, value in medians.items()},
        **{f"{kind}_costs_ms": round(medians[kind] - medians["off"], 1) for kind in kinds[1:]},
        **{
            f"ports_cost_{kind}_ms": round(medians[kind] - medians[kind + NO_PORTS], 1)
            for kind in kinds
            if kind + NO_PORTS in medians
        },
    }


def _launch(client: Client) -> float:
    job = client.submit({"name": "bench", "command": "true", "gpus": 1, "cpus": 0.1, "mem_mib": 32})
    last = list(client.follow(job, deadline=time.monotonic() + 30))[-1]
    return ((last["started_at"] or 0.0) - last["submitted_at"]) * 1000
