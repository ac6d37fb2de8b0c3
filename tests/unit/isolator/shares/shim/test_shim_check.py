"""Whether this host can keep shares by our libraries: the switch, the volume, and a trial over the driver."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.shares.shim import ability, sources
from isolator.shares.shim.check import check, tried
from isolator.shares.shim.region import CardLimits
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from tests.cuda import Bench
from tests.doubles.cuda import MIB
from tests.doubles.elf_files import driver_tree
from tests.hosts import memory_directory
from volumes.build import make
from volumes.shim import Shim
from volumes.store import Store

V = "535.129.03"
INVENTORY = Inventory(source="nvml", driver_version=V)


class Node:
    """A host with a driver of small files and, if wished, a volume with the real files of ours over the doubles."""

    def __init__(self, path: Path) -> None:
        self.path, self.root = path, path / "root"
        self.env = {
            "MESOS_GPU_VOLUMES": str(path / "volumes"),
            "MESOS_GPU_CACHE": str(path / "cache"),
            "PATH": os.environ["PATH"],
        }
        driver_tree(self.root, V, beside=False)

    def build(self, libraries: tuple[Path, dict[str, str]]) -> Path:
        """Build the volume with ours; the driver's own are the doubles."""
        stubs, ours = libraries
        for name in ("libcuda.so", "libnvidia-ml.so"):
            path = self.root / f"usr/lib/x86_64-linux-gnu/{name}.{V}"
            path.unlink()
            path.write_bytes((stubs / f"{name}.1").read_bytes())
        shim = Shim(sources.digest(), ours["libcuda.so.1"], ours["libnvidia-ml.so.1"])
        return make(Store(self.path / "volumes").path, self.root, V, shim=shim).path


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    with memory_directory() as path:
        monkeypatch.setenv("MESOS_GPU_NODE_DIR", str(path / "node"))
        (path / "node").mkdir()
        yield Node(path)


def test_shim_without_a_driver_or_a_volume_says_why(node: Node) -> None:
    assert ability.lacks(node.env, Inventory()) == "no driver"
    assert ability.lacks(node.env, INVENTORY) == "the driver volume with them is not built yet"
    assert (
        ability.lacks({**node.env, "PATH": ""}, INVENTORY)
        == "the libraries are not built, and there is no C compiler"
    )


def test_shim_can_be_switched_off_at_once(node: Node, libraries: tuple[Path, dict[str, str]]) -> None:
    node.build(libraries)
    assert ability.lacks(node.env, INVENTORY) == ""
    assert ability.lacks({**node.env, "MESOS_GPU_SHIM": "off"}, INVENTORY) == "MESOS_GPU_SHIM=off"
    switch = node.path / "node" / "shim.off"
    switch.touch()
    assert ability.lacks(node.env, INVENTORY) == f"{switch} is there"
    assert ability.libraries(node.env) is None
    switch.unlink()
    assert ability.lacks(node.env, INVENTORY) == ""


def test_shim_is_not_used_over_a_driver_with_an_unknown_function(
    node: Node, libraries: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HAMi-core #52: a new driver."""
    node.build(libraries)
    monkeypatch.setattr(
        "isolator.shares.shim.exports.exports", lambda _: frozenset({"cuMemAlloc_v2", "cuMemAlloc_v9"})
    )
    ability._unproven.cache_clear()
    assert ability.lacks(node.env, INVENTORY) == "the driver has functions that are not known: cuMemAlloc_v9"
    ability._unproven.cache_clear()


def test_shim_check_tries_the_libraries_over_the_driver(
    node: Node, bench: Bench, libraries: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_CARDS", str(bench.cards.path))
    node.build(libraries)
    gpu = Gpu(GpuId(bench.cards.uuid()), "Stub GPU", 16384, 0, "00000000:01:00.0")
    results = {
        result.check: result for result in check(node.env, Inventory((gpu,), source="nvml", driver_version=V))
    }
    assert not results["libraries"].well, "not in the cache of this test"
    assert [name for name, result in results.items() if not result.well] == ["libraries"]
    assert results["driver"].text == f"{V} is a tested branch"
    assert results["trial"].text == "one MiB over a share of 64 MiB: CUresult 2; a half of it: 0"


def test_shim_check_without_a_card_loads_the_libraries(
    node: Node, libraries: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STUB_CARDS", raising=False)
    node.build(libraries)
    *_, trial = check(node.env, INVENTORY)
    assert (trial.well, trial.text) == (
        True,
        "they load, and the driver reports no card",
    )


def test_shim_check_finds_libraries_that_enforce_nothing(
    bench: Bench, libraries: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that gets the driver's own library in place of ours is granted what is too much."""
    monkeypatch.setenv("STUB_CARDS", str(bench.cards.path))
    (tmp_path / "bare/lib64").mkdir(parents=True)
    (tmp_path / "bare/lib64/libcuda.so.1").write_bytes((libraries[0] / "libcuda.so.1").read_bytes())
    seen = tried(tmp_path / "bare", [CardLimits(GpuId(bench.cards.uuid()), 64 * MIB)])
    assert seen == {"cuInit": 0, "too much": 0, "a part": 0}
