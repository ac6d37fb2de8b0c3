"""`python -m bench shim`: the time that the libraries for shares add to a launch, and how their windows split a card.

Driver and card are doubles (`tests.doubles.cuda`), so it needs a C compiler and no GPU.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from isolator.shares.shim import build
from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.cli import output
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.policy.sharing.windows import PERIOD_US, Tenant, Window, plan
from mesos_gpu.scheduler.options.parse import NumberRange
from tests.doubles.cuda import CARD_MIB, MIB, Cards, Host, compile_stubs

#: Thousandths of the card of each tenant, and microseconds of one kernel.
SPLITS: Final = (
    ((500, 500), 1000),
    ((700, 300), 1000),
    ((800, 200), 200),
    ((250, 250, 250, 250), 1000),
    ((500, 500), 5000),
)
LAUNCHES: Final = 300_000
WARM_UP_S: Final = 0.7
SLEEP_S: Final = 0.0005  # seconds of one sleep of `waking_ms`
_MAX_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Split:
    """The split of a card among tenants.

    Attributes:
        granted: Thousandths of the card that each tenant is granted.
        measured: Thousandths of the time that each tenant used the card.
        late_ms: Delay of sleepers during the measurement, as of `waking_ms`.
    """

    granted: tuple[int, ...]
    measured: tuple[int, ...]
    late_ms: float = 0.0

    @property
    def is_fair(self) -> bool:
        """Whether each tenant got its share, up to 30 thousandths more or 8 % and 30 thousandths less.

        All tenants together must get 93 % of the card: a kernel that does not fit into the rest of a window waits for
        the next one.
        """
        each = zip(self.granted, self.measured, strict=True)
        return all(0.92 * want - 30 <= got <= want + 30 for want, got in each) and sum(self.measured) >= 930


class Rig:
    """The compiled libraries and doubles, and one card."""

    def __init__(self, top: Path, command: Sequence[str]) -> None:
        """Compile the libraries for shares and the doubles."""
        self._top, self._stubs = top, top / "stubs"
        self.cards = Cards(top / "cards")
        compile_stubs(self._stubs, command)
        build.compile_into(top / "ours", command)
        self._ours = {name: str(top / "ours" / name) for name in build.FILES}
        self._hosts = 0

    def host(self, *, shim: bool = True, window: Window | None = None) -> Host:
        """Create a task that may use all memory of the card; without `shim` it has the driver's libraries alone."""
        self._hosts += 1
        host = Host(self._top / f"task{self._hosts}", self._stubs, self.cards, self._ours if shim else None)
        if shim:
            limits = CardLimits(GpuId(self.cards.uuid()), CARD_MIB * MIB, window=window)
            Region(host.region).create([limits])
        return host

    def cost_us(self, host: Host, runs: int) -> float:
        """Return the microseconds of a launch on a driver that does nothing: the best of several runs."""
        return min(self._cost_us(host) for _ in range(runs))

    def _cost_us(self, host: Host) -> float:
        program = host.client("cost", LAUNCHES, STUB_CUDA_NULL="1")
        answer, said = program.communicate(timeout=_MAX_S)
        if program.returncode:
            raise Unavailable(
                f"the program for the measurement failed: {answer}{said}", remedy="see its message"
            )
        return float(answer)

    def split(
        self, compute_milli: Sequence[int], kernel_us: int, seconds: float, *, shim: bool = True
    ) -> Split:
        """Measure the split among tenants that always have work; without `shim` the driver decides."""
        tasks = [TaskId(str(number)) for number, _ in enumerate(compute_milli)]
        tenants = [Tenant(task, milli) for task, milli in zip(tasks, compute_milli, strict=True)]
        windows: Mapping[TaskId, Window | None] = plan(tenants).granted if shim else dict.fromkeys(tasks)
        hosts = [self.host(shim=shim, window=windows[task]) for task in tasks]
        run_ms = (WARM_UP_S + seconds + 2.0) * 1000
        programs = [host.client("run", run_ms, kernel_us) for host in hosts]
        try:
            time.sleep(WARM_UP_S)
            before, began = self.cards.busy_ns(), time.monotonic_ns()
            late_ms = waking_ms(seconds)
            after, took_ns = self.cards.busy_ns(), time.monotonic_ns() - began
        finally:
            for program in programs:
                program.kill()
                program.communicate()
        pids = [program.pid for program in programs]
        measured = (after.get(pid, 0) - before.get(pid, 0) for pid in pids)
        shares = tuple(round(busy_ns * 1000 / took_ns) for busy_ns in measured)
        return Split(tuple(compute_milli), shares, late_ms)


def waking_ms(seconds: float = 0.2) -> float:
    """Return the 90th percentile of the milliseconds by which sleepers wake late; long delays distort a split."""
    late_s, until = [0.0], time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        time.sleep(SLEEP_S)
        late_s.append(time.perf_counter() - began - SLEEP_S)
    return sorted(late_s)[len(late_s) * 9 // 10] * 1000


@click.command()
@click.option(
    "--runs",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each measurement of a launch; the best counts.",
)
@click.option(
    "--seconds", default=3.0, show_default=True, type=NumberRange(0.5), help="Duration of each split."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def shim(runs: int, seconds: float, as_json: bool) -> None:
    """Launch kernels and split a card by the libraries for shares, beside the driver alone; no GPU is used."""
    command = build.compiler(os.environ)
    if command is None:
        raise Unavailable("there is no C compiler", remedy="apt-get install gcc libc6-dev")
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top:
        try:
            rig = Rig(Path(top), command)
        except subprocess.CalledProcessError as error:
            raise Unavailable(
                f"{command[0]} fails: {error.stderr}", remedy="install gcc and libc6-dev"
            ) from error
        figures = {**_costs(rig, runs), "sleepers_wake_late_ms": round(waking_ms(), 3)}
        splits = [_split(rig, granted, kernel_us, seconds) for granted, kernel_us in SPLITS]
    if as_json:
        output.document({**figures, "splits": [_described(*split) for split in splits]})
        return
    output.table(("FIGURE", "VALUE"), list(figures.items()), empty="")
    headers = ("GRANTED %", "KERNEL US", "DRIVER ALONE %", "WINDOWS %", "IN ALL %")
    rows = [
        (
            *(_percent(ours.granted), kernel_us, _percent(alone.measured)),
            *(_percent(ours.measured), sum(ours.measured) / 10),
        )
        for kernel_us, alone, ours in splits
    ]
    output.table(headers, rows, empty="")


def _costs(rig: Rig, runs: int) -> dict[str, float]:
    output.note(f"{LAUNCHES} launches on a driver that does nothing, {runs} times each")
    bare = rig.cost_us(rig.host(shim=False), runs)
    uncapped = rig.cost_us(rig.host(), runs)
    windows = rig.cost_us(rig.host(window=Window(0, PERIOD_US - 1)), runs)
    return {
        "launch_driver_alone_us": round(bare, 4),
        "launch_uncapped_us": round(uncapped, 4),
        "launch_windows_us": round(windows, 4),
        "uncapped_adds_us": round(uncapped - bare, 4),
        "windows_add_us": round(windows - bare, 4),
    }


def _split(rig: Rig, granted: tuple[int, ...], kernel_us: int, seconds: float) -> tuple[int, Split, Split]:
    output.note(f"{_percent(granted)} % of a card that always has work, kernels of {kernel_us} us")
    alone = rig.split(granted, kernel_us, seconds, shim=False)
    return kernel_us, alone, rig.split(granted, kernel_us, seconds)


def _described(kernel_us: int, alone: Split, ours: Split) -> dict[str, object]:
    return {
        "granted": list(ours.granted),
        "kernel_us": kernel_us,
        "driver_alone": list(alone.measured),
        "windows": list(ours.measured),
        "fair": ours.is_fair,
    }


def _percent(milli: Sequence[int]) -> str:
    return " + ".join(f"{each / 10:g}" for each in milli)
