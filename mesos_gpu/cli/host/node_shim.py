"""`mesos-gpu node shim`: the libraries that keep shares of GPUs, on this host."""

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
        "build": ("mesos_gpu.cli.host.node_shim", "Build the libraries, or see that they are there."),
        "check": ("mesos_gpu.cli.host.node_shim", "Try the libraries over this host's driver."),
    }


@click.group(cls=_Shim)
def shim() -> None:
    """Libraries of this host that keep shares of GPUs.

    They are a libcuda.so.1 and an NVML before the driver's. The node monitor builds them by itself where there is a C
    compiler, and with them a variant of the driver volume. MESOS_GPU_SHIM=off for the agent's executors and monitor,
    or a file shim.off in the node directory, keeps a host from using them.
    """


@click.command()
@click.option(
    "--machine",
    type=click.Choice(["x86_64", "aarch64"]),
    help="Build for hosts of this kind; default: this one's.",
)
@click.option("--zig", is_flag=True, help="With a compiler from PyPI, which is fetched and kept (340 MB).")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Put them into this directory, for a package or another host; default: the cache.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def build(machine: str | None, zig: bool, into: Path | None, as_json: bool) -> None:
    """Build the libraries, or see that they are there.

    The compiler is MESOS_GPU_CC, else cc, gcc or clang. They need no more than glibc 2.17, whatever they are built on.
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
            raise Unavailable("there is no C compiler", remedy="add --zig, or apt-get install gcc libc6-dev")
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
    """Try the libraries over this host's driver.

    A program loads them with a share of its own; where there is a card, one MiB over that share must be refused. Exit
    code 69: shares are not kept by them here.
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
            "this host does not keep shares by these libraries", remedy="see what failed, and docs/shim.md"
        )
