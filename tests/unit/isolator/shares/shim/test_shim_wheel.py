"""The wheel of a release: it has the libraries, and a host without a C compiler uses them."""

import json
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import isolator
from isolator.devices.facts import write_inventory
from isolator.shares.shim import build, sources
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from tests.cuda import Bench, compiler_or_skip
from tests.unit.isolator.shares.shim.test_shim_build import OLDEST, needs
from tests.unit.isolator.shares.shim.test_shim_check import Node, V

ROOT = Path(isolator.__file__).parents[1]
BUILT = Path("isolator/shares/shim/built")
LIBRARIES = tuple(build.FILES)


def _installed(path: Path, *options: str) -> Path:
    """The wheel, made and unpacked as pip does it; the checkout is as it was."""
    before = list((ROOT / BUILT).glob("*/*"))
    made = subprocess.run(
        [sys.executable, ROOT / "scripts/wheel.py", "--into", path / "dist", *options],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert list((ROOT / BUILT).glob("*/*")) == before
    site = path / "site"
    with zipfile.ZipFile(made.stdout.strip()) as wheel:
        wheel.extractall(site)
    return site


def _machine(library: Path) -> bytes:
    return library.read_bytes()[18:20]  # e_machine of its ELF header


class Host:
    """A host with the wheel, a driver of doubles and a card, without any compiler."""

    def __init__(self, node: Node, site: Path, cards: Path) -> None:
        empty = node.path / "no-programs"
        empty.mkdir()
        self._env = {
            **node.env, "PATH": str(empty), "PYTHONPATH": str(site), "MESOS_GPU_NODE_DIR": str(node.path / "node"),
            "STUB_CARDS": str(cards),
        }  # fmt: skip

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            env=self._env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "node").mkdir()
    return Node(tmp_path)


@pytest.mark.on_change("install")
def test_a_host_without_a_compiler_keeps_shares_by_the_libraries_of_the_wheel(
    tmp_path: Path, node: Node, bench: Bench, libraries: tuple[Path, dict[str, str]]
) -> None:
    """The short form: for this machine, by its own compiler."""
    compiler_or_skip()
    site = _installed(tmp_path, "--host-compiler", "--machine", platform.machine())
    packaged = site / BUILT / platform.machine()
    assert {path.name for path in packaged.iterdir()} == {*LIBRARIES, "digest"}
    host = Host(node, site, bench.cards.path)
    have = (
        "import os; from isolator.shares.shim import build; s = build.have(os.environ); print(s.cuda, s.nvml)"
    )
    assert host.run("-c", have).split() == [str(packaged / name) for name in LIBRARIES]
    node.build((libraries[0], {name: str(packaged / name) for name in LIBRARIES}))
    card = Gpu(GpuId(bench.cards.uuid()), "Stub GPU", 16384, 0, "00000000:01:00.0")
    write_inventory(node.path / "node", Inventory((card,), source="nvml", driver_version=V))
    results: list[dict[str, Any]] = json.loads(host.run("-m", "mesos_gpu", "node", "shim", "check", "--json"))
    assert {each["check"]: each["well"] for each in results} == dict.fromkeys(
        ("switch", "libraries", "driver", "volume", "exports", "trial"), True
    )
    assert results[1]["text"] == str(packaged / LIBRARIES[0])
    assert "CUresult 2; a half of it: 0" in results[-1]["text"]


@pytest.mark.long
def test_the_wheel_has_libraries_for_both_machines(tmp_path: Path) -> None:
    """By the pinned zig of PyPI, which is fetched once into the user's cache."""
    site = _installed(tmp_path)
    for machine, elf in (("x86_64", b"\x3e\x00"), ("aarch64", b"\xb7\x00")):
        packaged = site / BUILT / machine
        assert (packaged / "digest").read_text() == sources.digest()
        for name in LIBRARIES:
            assert _machine(packaged / name) == elf
            assert needs(packaged / name)[2] <= OLDEST
