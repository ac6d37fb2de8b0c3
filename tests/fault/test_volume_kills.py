"""A builder or a collector killed at its steps: old or new, and no litter after the next run."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.elf_files import driver_tree, shared_object
from volumes.build import build
from volumes.discover import discover
from volumes.manifest import plan
from volumes.model import DriverFiles, Plan
from volumes.store import Store, verify

V = "535.129.03"
LIB = f"usr/lib/x86_64-linux-gnu/libcuda.so.{V}"
#: What changes something, or opens it; each is one step (docs.python.org, "Audit events table").
STEPS = ("open", "os.", "shutil.", "fcntl.")
#: Steps from one kill to the next: long runs have a kill at every step.
each_stride = pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.long)])


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that is killed just before its n-th step; whether it came so far."""
    pid = os.fork()
    if pid == 0:
        steps = iter(range(step))

        def hook(event: str, _arguments: object) -> None:
            if event.startswith(STEPS) and next(steps, None) is None:
                signal.raise_signal(signal.SIGKILL)

        sys.addaudithook(hook)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.WIFSIGNALED(status)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    driver_tree(tmp_path / "root", V, beside=False)
    return tmp_path / "root"


def small_plan(root: Path) -> Plan:
    """Plan with a few of the files that were discovered: each is like the others."""
    files = discover(root)
    few = [
        file for file in files.libraries if file.name.startswith(("libcuda.so", "libnvidia-ml", "libnvcuvid"))
    ]
    return plan(DriverFiles(tuple(few), files.programs[:1]), V)


def tidy(store: Store) -> list[str]:
    """What lies in a store but its builds."""
    names = sorted(path.name for path in store.path.iterdir())
    return names + sorted(path.name for path in store.builds.iterdir() if path.name.startswith("."))


@each_stride
def test_first_build_killed_at_any_step_leaves_no_half_volume(
    root: Path, tmp_path: Path, stride: int
) -> None:
    made = small_plan(root)
    for step in range(0, 1000, stride):
        store = Store(tmp_path / f"volumes{step}")
        killed = killed_at(step, lambda store=store: build(store.path, root, made))  # type: ignore[misc]
        current = store.current(V)
        if current is not None:
            assert verify(store.read(current)) == (), f"half a volume after step {step}"
        again = build(store.path, root, made)
        assert verify(again.volume) == ()
        assert tidy(store) == [".lock", "builds", f"nvidia_{V}"], f"litter of step {step}"
        assert len(store.volumes()) == 1
        if not killed:
            assert step > 40, "a build has more steps"
            return
    pytest.fail("it never ended")


@each_stride
def test_a_rebuild_killed_at_any_step_leaves_a_whole_volume(root: Path, tmp_path: Path, stride: int) -> None:
    store = Store(tmp_path / "volumes")
    made = small_plan(root)
    for step in range(0, 1000, stride):
        before = build(store.path, root, made)
        (root / "new").write_bytes(shared_object(soname="libcuda.so.1", content=str(step).encode()))
        (root / "new").replace(root / LIB)
        killed = killed_at(step, lambda: build(store.path, root, made))
        current = store.current(V)
        assert current is not None, f"no volume after step {step}"
        assert verify(store.read(current)) == ()
        assert verify(before.volume) == (), "who has the old one keeps it"
        build(store.path, root, made)
        assert tidy(store) == [".lock", "builds", f"nvidia_{V}"], f"litter of step {step}"
        store.collect(lambda: (), lambda volume: volume.current)
        if not killed:
            assert step > 40
            return
    pytest.fail("it never ended")


@each_stride
def test_a_collector_killed_at_any_step_leaves_no_litter(root: Path, tmp_path: Path, stride: int) -> None:
    made = small_plan(root)
    for step in range(0, 1000, stride):
        store = Store(tmp_path / f"volumes{step}")
        build(store.path, root, made)
        killed = killed_at(step, lambda store=store: store.collect(lambda: (), lambda _: False))  # type: ignore[misc]
        current = store.current(V)
        assert current is None or verify(store.read(current)) == ()
        store.collect(lambda: (), lambda _: False)
        assert tidy(store) == [".lock", "builds"], f"litter of step {step}"
        if not killed:
            assert step > 10
            return
    pytest.fail("it never ended")


@each_stride
def test_a_collector_killed_after_a_task_took_the_volume_leaves_it_to_the_task(
    root: Path, tmp_path: Path, stride: int
) -> None:
    made = small_plan(root)
    for step in range(0, 1000, stride):
        store = Store(tmp_path / f"volumes{step}")
        built = build(store.path, root, made)
        asked: list[int] = []

        def held(asked: list[int] = asked, name: str = built.path.name) -> set[str]:
            asked.append(1)
            return set() if len(asked) == 1 else {name}

        killed = killed_at(step, lambda store=store: store.collect(held, lambda _: False))  # type: ignore[misc]
        store.collect(lambda name=built.path.name: {name}, lambda _: False)  # type: ignore[misc]
        assert verify(store.read(built.path)) == (), f"gone at step {step}"
        if not killed:
            return
    pytest.fail("it never ended")
