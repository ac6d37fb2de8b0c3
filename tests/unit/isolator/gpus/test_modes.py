"""Modes of the files of a node, which its owner alone can read with any umask."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolator.devices.facts import write_inventory
from isolator.gpus.cards import Cards
from isolator.gpus.ledger import Ledger, Owner
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.policy.gpus.health import HealthSettings


@pytest.fixture(autouse=True)
def nothing_masked() -> Iterator[None]:
    umask = os.umask(0)
    yield
    os.umask(umask)


def claim(node: Path) -> None:
    Ledger(node / "ledger.sqlite").claim("t.1", [GpuId("GPU-a")], Owner.of(os.getpid()), container="c-1")


def lock(node: Path) -> None:
    os.close(Ledger(node / "ledger.sqlite").lock("c-1"))


def turn(node: Path) -> None:
    with Ledger(node / "ledger.sqlite").turn([GpuId("GPU-a")]):
        pass


def inventory(node: Path) -> None:
    write_inventory(node, Inventory())


def cards(node: Path) -> None:
    survey = Survey((Reading(simulated_gpus(1, "Tesla T4", seed="modes")[0]),), "nvml")
    Cards(node / "health.json", HealthSettings()).surveyed(survey, {}, 1000.0)


@pytest.mark.parametrize(
    ("write", "modes"),
    [
        (claim, {".": 0o700, "ledger.sqlite": 0o600}),
        (lock, {".": 0o700, "owners": 0o700, "owners/c-1": 0o600}),
        (turn, {".": 0o700, "cards": 0o700, "cards/GPU-a.lock": 0o600}),
        (inventory, {".": 0o700, "inventory.json": 0o666}),
        (cards, {".": 0o700, "health.json": 0o666}),
    ],
)
def test_files_of_a_node_are_its_owners_alone(
    tmp_path: Path, write: Callable[[Path], None], modes: dict[str, int]
) -> None:
    """Files that have no secrets are closed by their directory."""
    node = tmp_path / "above" / "node"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        write(node)
        modes_seen = {
            str(path.relative_to(node)): stat.S_IMODE(path.stat().st_mode)
            for path in (node, *node.rglob("*"))
            if not path.name.startswith("ledger.sqlite-")
        }
        assert modes_seen == modes
    assert len(os.listdir("/proc/self/fd")) == before
    assert not list(node.glob(".*")), "no part of a file stays"
