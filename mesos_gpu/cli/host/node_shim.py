"""`mesos-gpu node shim`: the libraries of this host that enforce GPU shares."""

import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.records.on_host import recorded
from mesos_gpu.cli.table import Table
from mesos_gpu.errors import Unavailable


class _Shim(Table):
    table: ClassVar = {
        "build": ("mesos_gpu.cli.host.node_shim", "Build the libraries if they are missing."),
        "check": ("mesos_gpu.cli.host.node_shim", "Test the libraries with this host's driver."),
    }


@click.group(cls=_Shim)
def shim() -> None:
    """Libraries of this host that enforce shares of GPUs.

    They are a libcuda.so.1 and an NVML in front of the driver's. The node monitor builds them if there is a C compiler,
    together with a variant of the driver volume. MESOS_GPU_SHIM=off for the agent's executors and monitor, or a file
    shim.off in the node directory, turns them off on a host.
    """


@click.command()
@click.option(
    "--machine",
    type=click.Choice(["x86_64", "aarch64"]),
    help="Architecture to build for; default: this host's.",
)
@click.option("--zig", is_flag=True, help="Use a compiler from PyPI, which is downloaded and kept (340 MB).")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the libraries, for a package or another host; default: the cache.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def build(machine: str | None, zig: bool, into: Path | None, as_json: bool) -> None:
    """Build the libraries if they are missing.

    The compiler is MESOS_GPU_CC, else cc, gcc or clang. The libraries need glibc 2.17 or later on any build host.
    """
    from isolator.shares.shim import build as building
    from isolator.shares.shim import sources

    machine = machine or platform.machine()
    command = building.zig(os.environ, machine) if zig else None
    if command is None and machine != platform.machine():
        raise Unavailable(f"this host's compiler does not build for {machine}", remedy="add --zig")
    if into is None:
        with recorded("node shim build", "shim:cache"):
            made = building.have(os.environ, machine, command)
        paths = [made.cuda, made.nvml]
    else:
        command = command or building.compiler(os.environ)
        if command is None:
            raise Unavailable("no C compiler was found", remedy="add --zig, or apt-get install gcc libc6-dev")
        with recorded("node shim build", f"directory:{into}"):
            into.parent.mkdir(parents=True, exist_ok=True)
            building.compile_into(into, command)
        paths = [str(into / name) for name in building.FILES]
    if as_json:
        output.document({"digest": sources.digest(), "machine": machine, "paths": paths})
        return
    for path in paths:
        output.line(path)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(as_json: bool) -> None:
    """Test the libraries with this host's driver.

    A program loads them with a share; if there is a GPU, an allocation of one MiB beyond the share must fail. Exit code
    69: the libraries do not enforce shares here.
    """
    from isolator.shares.shim import check as checking
    from mesos_gpu.cli.host.node_cdi import inventory_now

    results = tuple(checking.check(os.environ, inventory_now()))
    if as_json:
        output.document([asdict(result) for result in results])
    else:
        rows = [(result.check, "OK" if result.well else "FAIL", result.text) for result in results]
        output.table(("CHECK", "RESULT", "WHAT"), rows, empty="")
    if not all(result.well for result in results):
        raise Unavailable(
            "the libraries do not enforce shares on this host",
            remedy="fix the failed checks above, see docs/shim.md",
        )
