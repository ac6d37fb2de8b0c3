"""The commands `mesos-gpu node shim build` and `check`, also on a host without a compiler or a driver."""

import json
import platform
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isolator.devices.facts import write_inventory
from isolator.shares.shim import build, sources
from mesos_gpu.cli import main
from mesos_gpu.model.nodes.gpu import Inventory
from tests.cuda import compiler_or_skip


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a host with a cache, a node directory and a store of its own, and without a driver."""
    for name in ("MESOS_GPU_CACHE", "MESOS_GPU_NODE_DIR", "MESOS_GPU_VOLUMES"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "MESOS_GPU_NODE_DIR").mkdir()
    monkeypatch.delenv("MESOS_GPU_CC", raising=False)
    write_inventory(tmp_path / "MESOS_GPU_NODE_DIR", Inventory(source="nvml"))
    return tmp_path


@pytest.fixture(params=["double", pytest.param("real", marks=pytest.mark.long)])
def compiler(request: pytest.FixtureRequest, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a compiler: a double that writes empty libraries, or the one of this host."""
    if request.param == "real":
        compiler_or_skip()
        return
    double = host / "cc"
    double.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n: > "$2"\n')
    double.chmod(0o755)
    monkeypatch.setenv("MESOS_GPU_CC", str(double))


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["node", "shim", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.usefixtures("compiler")
def test_shim_build_prints_the_paths_of_the_libraries(host: Path) -> None:
    paths = run("build").stdout.split()
    assert [Path(path).name for path in paths] == list(build.FILES)
    assert all(Path(path).is_file() for path in paths)
    made = json.loads(run("build", "--json").stdout)
    assert made == {"digest": sources.digest(), "machine": platform.machine(), "paths": paths}


@pytest.mark.usefixtures("compiler")
def test_shim_build_into_a_directory_is_for_a_package(host: Path) -> None:
    run("build", "--into", str(host / "built" / "x"))
    assert {path.name for path in (host / "built" / "x").iterdir()} == {*build.FILES, "digest"}


def test_shim_build_without_a_compiler_says_what_to_do(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(host))
    assert "apt-get install gcc libc6-dev" in run("build", code=69).output
    assert "add --zig" in run("build", "--into", str(host / "x"), code=69).output


def test_shim_build_for_another_machine_needs_its_compiler(host: Path) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    assert (
        f"this host's compiler does not build for {other}" in run("build", "--machine", other, code=69).output
    )


def test_shim_check_names_missing_libraries_and_fails(host: Path) -> None:
    answer = run("check", code=69).output
    assert "mesos-gpu node shim build" in answer
    assert "this host has no NVIDIA driver" in answer
    (host / "MESOS_GPU_NODE_DIR" / "shim.off").touch()
    results = json.loads(run("check", "--json", code=69).stdout.partition("Error")[0])
    assert results[0] == {
        "check": "switch",
        "well": False,
        "text": f"{host}/MESOS_GPU_NODE_DIR/shim.off is there",
    }
