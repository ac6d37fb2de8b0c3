"""Times at which a driver volume is built or awaited, on a clock of the test and without a build."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.gpus import driver_volume
from isolator.gpus.driver_volume import (
    AT_WORK,
    Keeper,
    awaited,
    driver_root,
    is_older,
    lease,
    libraries_of_module,
)
from isolator.gpus.ledger import Ledger, Trace
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.nodes.gpu import Inventory

INVENTORY = Inventory(source="nvml", driver_version="550.1", cuda_version="12.2")


class Clock:
    """Time that passes in sleeps alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.at)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Building:
    """Builds that were begun; each runs for as long as a test says, and then does its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        building = self
        self.begun: list[tuple[str, bool]] = []
        self.runs = False
        self.work: Callable[[], None] = lambda: None
        self.volumes: set[str] = set()

        class Thread:
            def __init__(self, *, target: Callable[..., None], args: tuple[str, bool], daemon: bool) -> None:
                assert daemon, "it keeps no process alive"
                self.target, self.args = target, args

            def start(self) -> None:
                building.begun.append(self.args)
                building.finish = lambda: self.target(*self.args)

            def is_alive(self) -> bool:
                return building.runs

        monkeypatch.setattr("threading.Thread", Thread)
        self.finish: Callable[[], None] = lambda: None
        self.keeper = Keeper({"MESOS_GPU_VOLUMES": str(directory)}, Ledger(directory / "ledger.sqlite"))
        for name in "_have", "_have_variant", "_remove_old":
            monkeypatch.setattr(self.keeper, name, lambda *_: self.work())
        monkeypatch.setattr(
            self.keeper._store, "current", lambda version: version if version in self.volumes else None
        )

    def look(self, **change: Any) -> tuple[str | None, str]:
        inventory = self.keeper.look(replace(INVENTORY, **change))
        return inventory.volume, inventory.volume_problem


def test_volume_is_built_once_and_looked_at_again_in_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    building = Building(monkeypatch, tmp_path)
    assert not building.keeper.busy()
    assert building.look() == (None, AT_WORK)
    building.runs = True
    clock.at += 1e5
    assert building.look() == (None, AT_WORK)
    assert building.look(driver_version="560.2") == (None, AT_WORK)
    assert building.begun == [("550.1", False)], "one at a time"
    building.volumes.add("550.1")
    building.finish()
    building.runs = False
    clock.at += driver_volume.LOOK_AGAIN_S - 1
    assert building.look() == ("550.1", "")
    assert len(building.begun) == 1
    clock.at += 1
    assert building.look() == ("550.1", "")
    assert len(building.begun) == 2
    building.finish()
    building.keeper.look_again()
    building.look()
    assert len(building.begun) == 3
    building.finish()
    assert building.look(driver_version="560.2", source="simulated") == (None, AT_WORK)
    assert building.begun[3:] == [("560.2", True)], "another driver is not waited with"
    assert building.keeper.look(Inventory()) == Inventory()


@pytest.mark.parametrize("error", [Unavailable("why", remedy="none"), PermissionError(1, "why")])
def test_volume_that_cannot_be_built_is_tried_again_in_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, error: Exception
) -> None:
    building = Building(monkeypatch, tmp_path)
    why = "why" if isinstance(error, Unavailable) else "[Errno 1] why"

    def work() -> None:
        raise error

    building.work = work
    building.look()
    building.finish()
    assert building.look() == (None, why)
    building.volumes.add("550.1")
    assert building.look() == ("550.1", why)
    clock.at += driver_volume.RETRY_S - 1
    building.look()
    assert len(building.begun) == 1
    clock.at += 1
    building.work = lambda: None
    building.look()
    assert len(building.begun) == 2
    building.finish()
    assert building.look() == ("550.1", "")


@pytest.mark.parametrize(
    ("problem", "comes_at", "waited_s"),
    [(AT_WORK, 1000.0, 0.0), (AT_WORK, 1003.0, 3.0), ("the disk is full", 1003.0, 0.0), ("", 1003.0, 0.0),
     (AT_WORK, 1099.0, 20.1)],
)  # fmt: skip
def test_volume_is_awaited_while_it_is_being_built(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, problem: str, comes_at: float, waited_s: float
) -> None:
    build = Path("/build")
    monkeypatch.setattr(driver_volume, "for_tasks", lambda *_: build if clock.at >= comes_at - 1e-6 else None)
    build_awaited = awaited({}, replace(INVENTORY, volume_problem=problem))
    assert clock.at - 1000 == pytest.approx(waited_s, abs=0.11)
    assert build_awaited == (build if clock.at >= comes_at - 1e-6 else None)


def test_volume_is_leased_by_its_path() -> None:
    assert lease(None) == ()
    assert lease(Path("/volumes/builds/x")) == (Trace("volume", "/volumes/builds/x"),)


@pytest.mark.parametrize(
    ("env", "root"),
    [({}, "/"), ({"MESOS_GPU_DRIVER_ROOT": ""}, "/"), ({"MESOS_GPU_DRIVER_ROOT": "/r"}, "/r")],
)
def test_driver_is_below_the_root_that_is_named(env: dict[str, str], root: str) -> None:
    assert driver_root(env) == Path(root)


def test_libraries_are_of_the_volume_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    version: list[str | None] = [None]
    monkeypatch.setattr("volumes.version.kernel_version", lambda _root: version[0])
    monkeypatch.setattr(driver_volume, "current", lambda _path, name: Path("/b") if name == "550.1" else None)
    assert libraries_of_module({}) is None
    version[0] = "1.2"
    assert libraries_of_module({}) is None
    version[0] = "550.1"
    assert libraries_of_module({}) == Path("/b/lib64")


def test_version_is_not_older_than_itself() -> None:
    assert not is_older("535.129.03", "535.129.03")
    assert is_older("535.129.03", "535.129.4")
