"""A process gives itself any name, of any bytes, prctl(2): who reads of it in /proc is not stopped by that."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger
from isolator.host import processes, user_pool
from isolator.node.reaper import strangers
from isolator.runs import joining
from isolator.shares.loaded import Loaded, ProcessInspector
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.model.ids import GpuId

NAME = b"\xff) Z\rState:\tZ"
RENAMED = "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode('latin-1'), 0, 0, 0); print(flush=True)"


@pytest.fixture
def hostile() -> Iterator[int]:
    """A process with a name that is no UTF-8, and that reads like something else."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", f"{RENAMED}; sys.stdin.read()", NAME.decode("latin-1")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUTF8": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"\n"
        assert NAME in Path(f"/proc/{process.pid}/comm").read_bytes()
        yield process.pid
        process.stdin.close()


def test_hostile_process_has_a_start_time(hostile: int) -> None:
    assert start_ticks(hostile)
    assert not processes._is_zombie(hostile)


def test_hostile_process_has_its_user(hostile: int) -> None:
    assert (hostile, os.getuid()) in list(user_pool._processes())
    assert joining._status(hostile)["State"][0] in "RS"


def test_the_watch_goes_on_and_a_stranger_is_named(hostile: int, tmp_path: Path) -> None:
    looker = ProcessInspector("libmgpu-real-cuda.so", lambda _: Loaded(True))
    assert looker.look([{hostile}], set(), frozenset({(1, 1)}), None).keys() == {hostile}
    gpu = GpuId("GPU-1")
    named = strangers(Ledger(tmp_path / "ledger.sqlite"), {gpu: [hostile]})
    assert f"pid {hostile} (\ufffd) Z\\nState:\\tZ)" in named[gpu]
