"""Which libcuda a process has mapped, on file systems whose devices stat and the list of mappings name differently."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.shares.loaded import Question, read
from mesos_gpu.local import leftovers
from tests.conftest import wait_until

pytestmark = pytest.mark.kernel


def mount(kind: str, options: str, at: Path) -> None:
    command = ["mount", "-t", kind, kind, "-o", options, str(at)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no {kind} here: {done.stderr.strip()}")


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """A directory of overlayfs, whose layers are on two file systems, with a program that is named as libcuda."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it mounts an overlay")
    lower, upper, work, merged = (tmp_path / name for name in ("lower", "upper", "work", "merged"))
    for path in (lower, upper, work, merged):
        path.mkdir()
    sleep = shutil.which("sleep")
    assert sleep is not None
    try:
        mount("tmpfs", "size=1m", lower)
        shutil.copy(sleep, lower / "libcuda.so.1")
        mount("overlay", f"lowerdir={lower},upperdir={upper},workdir={work}", merged)
        yield merged
    finally:
        leftovers.unmount(tmp_path)


@pytest.mark.parametrize("layer", ["lower", "upper"])
def test_a_libcuda_on_overlay_is_the_file_that_stat_names(overlay: Path, layer: str) -> None:
    path = overlay / "libcuda.so.1"
    if layer == "upper":
        shutil.copy(path, overlay / "copy")
        (overlay / "copy").rename(path)
    with subprocess.Popen([str(path), "60"]) as process:
        try:
            wait_until("it runs", lambda: b"libcuda" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
            status = path.stat()
            seen = read(Question(process.pid, ("libcuda.so",), None, True, float("inf")))
            assert seen.libraries == frozenset({(str(path), (status.st_dev, status.st_ino))})
        finally:
            process.kill()
