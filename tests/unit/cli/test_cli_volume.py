"""`mesos-gpu volume`, on a host made of files."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner, Result

from isolator.gpus import driver_volume
from isolator.gpus.ledger import Ledger, Owner
from mesos_gpu.cli import main
from tests.doubles.elf_files import driver_tree
from volumes import discover
from volumes.elf import read_elf
from volumes.model import Elf
from volumes.store import Store

V, NEW = "535.129.03", "550.54.14"


class Host:
    """A host's root and store; `run` gives a command both."""

    def __init__(self, path: Path) -> None:
        self.root, self.store = path / "root", path / "volumes"
        driver_tree(self.root, V, beside=False)
        # Who holds a build is found by its name, which follows from its files: other tests have equal ones mounted.
        with (self.root / "usr/bin/nvidia-smi").open("ab") as program:
            program.write(os.fsencode(path))

    def run(self, *arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["volume", *arguments])
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str, code: int = 0) -> object:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def build(self) -> Path:
        self.run("build")
        current = Store(self.store).current(V)
        assert current is not None
        return current


@pytest.fixture(scope="module", autouse=True)
def _each_library_read_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Read equal libraries of several trees once: the reader has tests of its own."""
    seen: dict[bytes, Elf | None] = {}

    def read(file: BinaryIO) -> Elf | None:
        content = file.read()
        if content not in seen:
            seen[content] = read_elf(file)
        return seen[content]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discover, "read_elf", read)
        for version in (V, NEW):
            driver_tree(root := tmp_path_factory.mktemp("root"), version, beside=False)
            discover.discover(root)
        yield


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    monkeypatch.setenv("MESOS_GPU_DRIVER_ROOT", str(host.root))
    monkeypatch.setenv("MESOS_GPU_VOLUMES", str(host.store))
    monkeypatch.setenv("MESOS_GPU_NODE_DIR", str(tmp_path / "node"))
    return host


def test_volume_build_prints_its_result(host: Host) -> None:
    first = host.run("build").stdout
    assert f"{host.store}/nvidia_{V} built in " in first
    assert "by hard link)" in first
    assert "exists already" in host.run("build").stdout
    assert host.json("build", "--anew")["new"] is True  # type: ignore[index]
    assert not (host.store.parent / "node").exists(), "to look is not to make a ledger"


def test_volume_options_precede_the_environment(host: Host, tmp_path: Path) -> None:
    driver_tree(tmp_path / "other", NEW, beside=False)
    place = ("--store", str(tmp_path / "elsewhere"))
    built = host.json("build", "--root", str(tmp_path / "other"), *place)
    assert built["version"] == NEW  # type: ignore[index]
    assert [each["version"] for each in host.json("list", *place)] == [NEW]  # type: ignore[attr-defined]
    assert host.json("list") == []


def test_volume_plan_gives_a_reason_for_each_omitted_file(host: Host) -> None:
    text = host.run("plan").stdout
    assert f"lib64/libcuda.so.{V}" in text
    assert "it loads kernel modules, which is the host's matter" in text
    planned = host.json("plan")
    assert isinstance(planned, dict)
    assert planned["version"] == V
    assert {"target": "lib64/libcuda.so.1", "to": f"libcuda.so.{V}"} in planned["links"]
    assert all(each["reason"] for each in planned["excluded"])
    assert not host.store.exists(), "nothing is done"


def test_volume_list_and_show_print_volumes(host: Host) -> None:
    assert host.run("list").stdout.split() == [
        "DRIVER",
        "BUILD",
        "CURRENT",
        "FILES",
        "MIB",
        "BUILT",
        "HELD",
        "BY",
    ]
    build = host.build()
    (row,) = [line for line in host.run("list").stdout.splitlines() if V in line]
    assert f"{build.name}  yes" in row
    text = host.run("show").stdout
    assert "its file system is mounted" in text
    assert f"lib64/libcuda.so.{V}" in text
    assert "libcuda.so, libcuda.so.1" in text
    shown = host.json("show", V)
    assert isinstance(shown, dict)
    assert shown["links"]["lib64/libcuda.so"] == f"libcuda.so.{V}"
    assert (
        f"there is no driver volume of 1.2 in {host.store}; volumes there: {V}"
        in host.run("show", "1.2", code=66).output
    )


def test_volume_verify_names_changed_files(host: Host) -> None:
    build = host.build()
    assert "files, all unchanged" in host.run("verify").stdout
    (build / "bin/nvidia-smi").unlink()
    result = host.run("verify", V, code=65)
    assert "bin/nvidia-smi is missing" in result.stdout
    assert "mesos-gpu volume build --anew" in result.stderr
    printed = host.run("verify", "--json", code=65).stdout
    assert json.loads(printed) == {"volumes": {build.name: {"problems": ["bin/nvidia-smi is missing"]}}}


def test_volume_gc_keeps_held_volumes_and_that_of_the_driver(host: Host) -> None:
    build = host.build()
    driver_tree(host.root, NEW, beside=False)
    host.run("build")
    ledger, owner = Ledger(), Owner.of(os.getpid())
    ledger.claim("job-1.0", [], owner, traces=driver_volume.lease(build))
    kept = host.run("gc")
    assert kept.stdout == ""
    assert f"kept {build.name}: job-1.0 uses it" in kept.stderr
    (held,) = [each for each in host.json("list") if each["held_by"]]  # type: ignore[attr-defined]
    assert (held["version"], held["held_by"]) == (V, ["job-1.0"])
    ledger.release("job-1.0", owner)
    assert f"removed {build}" in host.run("gc").stdout
    assert [volume.version for volume in Store(host.store).volumes()] == [NEW]
    assert len(host.json("gc", "--all")["removed"]) == 1  # type: ignore[index]


WRONG = {
    "no such root": (("build", "--root", "/no/such"), 2, "does not exist"),
    "no such version": (("build", "--driver-version", "1.2"), 66, f"there are those of {V}"),
    "no such volume": (("verify", "9.9"), 66, "build it: mesos-gpu volume build"),
    "nothing there": (("show",), 66, "there is no driver volume"),
}


@pytest.mark.parametrize(("arguments", "code", "text"), WRONG.values(), ids=WRONG)
def test_wrong_words_for_a_volume_are_refused(
    host: Host, arguments: tuple[str, ...], code: int, text: str
) -> None:
    assert text in host.run(*arguments, code=code).output


def test_volume_disagreement_is_refused(host: Host) -> None:
    driver_tree(host.root, V, kernel=NEW, beside=False)
    text = host.run("build", code=73).output
    assert f"the kernel module is of driver {NEW}, but its libraries were not found" in text
    assert not (host.store / "builds").exists() or not list((host.store / "builds").iterdir())
