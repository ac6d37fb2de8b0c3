"""The store of layers: what it keeps, for how long, and what is left of executors that were killed."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.images import unpacking
from isolator.images.store import Held, Layer, Store
from isolator.images.unpacking import Readable
from mesos_gpu.errors import BadConfiguration, Unavailable
from tests.kernel.images.made import file, tar

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts, and gives files to users"),
]
MIB = 1 << 20


def never() -> bool:
    return False


class Source:
    """A layer of so many bytes, and how often it was asked for."""

    def __init__(self, name: str, size: int = 1000, digest: str = "") -> None:
        self.data, self.asked = tar(file(name, os.urandom(size))), 0
        self.layer = Layer(hashlib.sha256(name.encode()).hexdigest(), len(self.data), digest, self.open)

    @contextlib.contextmanager
    def open(self) -> Iterator[Readable]:
        import io

        self.asked += 1
        yield io.BytesIO(self.data)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", 10 * MIB)


def hold(store: Store, *sources: Source, is_aborted: Callable[[], bool] = never) -> Held:
    return store.hold([each.layer for each in sources], is_aborted)


def names(directory: Path) -> set[str]:
    return {path.name for path in (directory / "store").iterdir()}


def test_layers_are_fetched_once_and_only_root_enters(tmp_path: Path, store: Store) -> None:
    one, two = Source("one"), Source("two")
    held = hold(store, one, two)
    held.close()
    again = hold(store, one, two, one)  # of equal layers the highest counts
    assert [Path(path).name for path in again.paths] == [two.layer.key, one.layer.key]
    assert (one.asked, two.asked) == (1, 1)
    assert (Path(again.paths[1]) / "one").stat().st_size == 1000
    assert oct((tmp_path / "store").stat().st_mode) == "0o40700"
    again.close()


def test_equal_layers_of_an_image_are_one_directory_of_the_highest(store: Store) -> None:
    one, same, two = Source("one"), Source("one", size=2000), Source("two")
    assert one.layer.open != same.layer.open
    held = hold(store, one, two, same)
    assert [Path(path).name for path in held.paths] == [two.layer.key, one.layer.key]
    assert one.asked + same.asked == 1
    held.close()


def test_image_without_layers_is_the_fault_of_the_job(store: Store) -> None:
    with pytest.raises(NotStarted, match="no layers") as caught:
        hold(store)
    assert not caught.value.outcome.infrastructure


def test_least_recently_used_layers_go_first_and_used_ones_stay(tmp_path: Path, store: Store) -> None:
    old, used, new = (Source(name, 3 * MIB) for name in ("old", "used", "new"))
    for source in (used, old, new):
        held = hold(store, source)
        if source is used:
            kept = held
            continue
        held.close()
        time.sleep(0.01)  # times of files are as coarse as a tick of the kernel
    hold(store, Source("more", 3 * MIB)).close()
    assert old.layer.key not in names(tmp_path)
    assert {used.layer.key, new.layer.key} <= names(tmp_path)
    hold(store, Source("most", 6 * MIB)).close()
    assert new.layer.key not in names(tmp_path)
    assert used.layer.key in names(tmp_path)
    kept.close()
    hold(store, Source("last", 9 * MIB)).close()
    assert len(names(tmp_path)) == 2  # one layer and its lock


def test_image_larger_than_the_store_is_refused_and_leaves_nothing(tmp_path: Path, store: Store) -> None:
    for sizes in ((11 * MIB,), (6 * MIB, 6 * MIB)):
        sources = [Source(f"{number}-{len(sizes)}", size) for number, size in enumerate(sizes)]
        kept = sources[0].layer.key  # of the image of two layers the first one fits
        with pytest.raises(NotStarted, match="larger than the 10 MiB") as caught:
            hold(store, *sources)
        assert not caught.value.outcome.infrastructure
    bomb = Source("bomb", 11 * MIB)
    small = Layer(bomb.layer.key, 10, "", bomb.open)  # its size is a lie
    with pytest.raises(NotStarted, match="larger than"):
        store.hold([small], never)
    assert names(tmp_path) == {name for name in names(tmp_path) if name.startswith(kept)}


def test_layer_with_another_digest_is_refused_and_leaves_nothing(tmp_path: Path, store: Store) -> None:
    wrong = Source("wrong", digest=f"sha256:{'0' * 64}")
    with pytest.raises(NotStarted, match=f"not sha256:{'0' * 64}"):
        hold(store, wrong)
    assert names(tmp_path) == set()


def test_full_disk_is_told_with_the_remedy_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "store"], check=True)
    try:
        small, large = Store(tmp_path / "store", 10 * MIB), Source("large", 2 * MIB)
        lie = Layer(large.layer.key, 10, "", large.open)
        for layer, why in ((lie, "No space left on device"), (large.layer, "MiB are free")):
            with pytest.raises(Unavailable, match=why) as caught:
                small.hold([layer], never)
            assert "MESOS_GPU_IMAGE_CACHE_MIB" in caught.value.remedy
            assert names(tmp_path) == set()
        assert large.asked == 1
        hold(small, Source("old", 600_000)).close()
        hold(small, Source("fits", 900_000)).close()  # in place of the old one
        with pytest.raises(Unavailable, match="must stay free"):
            hold(small, Source("nearly", 1_020_000))
    finally:
        subprocess.run(["umount", tmp_path / "store"], check=True)


def test_start_that_is_given_up_ends_while_another_unpacks(store: Store) -> None:
    slow, go, begun, aborted = Source("slow"), threading.Event(), threading.Event(), threading.Event()

    @contextlib.contextmanager
    def waiting() -> Iterator[Readable]:
        begun.set()
        go.wait(60)
        with slow.open() as stream:
            yield stream

    first = Layer(slow.layer.key, slow.layer.size, "", waiting)
    threads = [threading.Thread(target=lambda: store.hold([first], never).close())]
    threads[0].start()
    begun.wait(60)
    ends: list[str] = []

    def second() -> None:
        try:
            hold(store, slow, is_aborted=aborted.is_set)
        except NotStarted as error:
            ends.append(str(error))

    threads.append(threading.Thread(target=second))
    threads[1].start()
    aborted.set()
    threads[1].join(60)
    assert ends == ["killed before it was started"]
    go.set()
    threads[0].join(60)
    assert slow.asked == 1


def test_image_waits_for_room_that_images_in_use_take(store: Store) -> None:
    kept, more = Source("kept", 6 * MIB), Source("more", 6 * MIB)
    held = hold(store, kept)
    with pytest.raises(Unavailable, match="images in use leave no space") as caught:
        hold(store, more)
    assert "MESOS_GPU_IMAGE_CACHE_MIB" in caught.value.remedy
    assert more.asked == 0
    again = hold(store, kept)  # takes nothing more
    for each in (held, again):
        each.close()
    hold(store, more).close()


@pytest.mark.parametrize("is_honest", [True, False])
def test_layers_that_are_being_unpacked_take_room(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_honest: bool
) -> None:
    import io

    monkeypatch.setattr(unpacking, "GROWTH_BYTES", MIB)
    first, second = Source("first", 6 * MIB), Source("second", 6 * MIB)
    refused: list[Unavailable] = []

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if not refused and self.tell() > (0 if is_honest else 5.5 * MIB):
                with pytest.raises(Unavailable, match="in use") as caught:
                    hold(store, second)
                refused.append(caught.value)
            return super().read(size)

    @contextlib.contextmanager
    def opened() -> Iterator[Readable]:
        yield Stream(first.data)

    size = first.layer.size if is_honest else 10
    store.hold([Layer(first.layer.key, size, "", opened)], never).close()
    assert len(refused) == 1


def test_layer_that_grows_beyond_the_room_ends_at_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "GROWTH_BYTES", MIB)
    kept, bomb = hold(store, Source("kept", 6 * MIB)), Source("bomb", 9 * MIB)
    with pytest.raises(Unavailable, match="in use leave no space for another: with it, layers would take 10"):
        store.hold([Layer(bomb.layer.key, 10, "", bomb.open)], never)
    assert bomb.layer.key not in names(tmp_path)
    kept.close()


CHILD = """
import contextlib, io, os, sys
from pathlib import Path
from isolator.images.store import Layer, Store
directory, key, how = sys.argv[1:]
data = Path(directory, "layer.tar").read_bytes()
class Slow(io.BytesIO):
    def read(self, size=-1):
        if how == "hangs" and self.tell() >= 20_000:
            print("half", flush=True)
            sys.stdin.read()
        return super().read(10_000)
@contextlib.contextmanager
def opened():
    with open(Path(directory, "asked"), "a") as file:
        file.write("x")
    yield Slow(data)
held = Store(Path(directory, "store"), 10 << 20).hold([Layer(key, len(data), "", opened)], lambda: False)
print("held", os.stat(held.paths[0] + "/x").st_size, flush=True)
sys.stdin.read()
"""


def child(directory: Path, key: str, how: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", CHILD, str(directory), key, how]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    with process:
        pass


def test_executors_at_once_unpack_a_layer_once(tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(tar(file("x", os.urandom(100_000))))
    started = [child(tmp_path, "k", "goes") for _ in range(4)]
    try:
        assert {line(each) for each in started} == {"held 100000"}
        assert (tmp_path / "asked").read_text() == "x"
    finally:
        for each in started:
            end(each)


def test_layer_that_a_killed_executor_left_unfinished_is_removed(tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(tar(file("x", os.urandom(100_000))))
    first = child(tmp_path, "first", "hangs")
    assert line(first) == "half"
    assert "first.part" in names(tmp_path)
    second = child(tmp_path, "second", "goes")
    assert line(second) == "held 100000"
    assert "first.part" in names(tmp_path)  # the first executor is at work on it
    end(first)
    third = child(tmp_path, "third", "goes")
    assert line(third) == "held 100000"
    assert "first.part" not in names(tmp_path)
    for each in (second, third):
        end(each)
    hold(Store(tmp_path / "store", 10 * MIB), Source("all", 10 * MIB - 20_000)).close()
    assert not {"second", "third"} & names(tmp_path)


@pytest.fixture
def immovable(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Make a directory of the store impossible to remove: something is mounted in it."""
    made: list[Path] = []

    def mount(name: str) -> None:
        made.append(tmp_path / "store" / name / "mounted")
        made[-1].mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", made[-1]], check=True)

    yield mount
    for path in (tmp_path / "store").rglob("mounted"):
        subprocess.run(["umount", path], check=True)


def test_layers_of_others_that_cannot_be_removed_are_no_obstacle(
    tmp_path: Path, store: Store, immovable: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    old, other, mine = Source("old", 3 * MIB), Source("other", 5 * MIB), Source("mine", 5 * MIB)
    for source in (old, other):
        hold(store, source).close()
        time.sleep(0.01)  # times of files are as coarse as a tick of the kernel
    immovable(old.layer.key)
    immovable("left.part")
    for _ in range(2):
        hold(store, mine).close()
    said = capfd.readouterr().err
    assert "left.part cannot be removed now" in said
    assert f"{old.layer.key}.part cannot be removed now" in said
    assert {"left.part", "left.lock", f"{old.layer.key}.part", f"{old.layer.key}.lock"} <= names(tmp_path)
    assert other.layer.key not in names(tmp_path)
    assert mine.asked == 1


def test_launch_waits_little_for_the_removal_of_what_others_left(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / "store" / f"{name}.part").mkdir(parents=True)
    (tmp_path / "rm").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "rm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("isolator.images.store._SWEEP_S", 0.2)
    begun = time.monotonic()
    hold(store, Source("mine")).close()
    assert time.monotonic() - begun < 30
    assert capfd.readouterr().err.count("there are too many files") == 1  # both share the time


def test_failure_of_a_layer_is_not_hidden_by_that_of_its_removal(
    tmp_path: Path, store: Store, immovable: Callable[[str], None]
) -> None:
    bad = Source("bad")

    def broken() -> contextlib.AbstractContextManager[Readable]:
        immovable(f"{bad.layer.key}.part")
        raise Unavailable("the registry broke off", remedy="try again later")

    with pytest.raises(Unavailable, match="broke off"):
        store.hold([Layer(bad.layer.key, 10, "", broken)], never)
    subprocess.run(["umount", tmp_path / "store" / f"{bad.layer.key}.part" / "mounted"], check=True)
    hold(store, bad).close()
    assert names(tmp_path) == {bad.layer.key, f"{bad.layer.key}.lock"}


def test_size_of_the_store_is_checked(tmp_path: Path) -> None:
    for wrong in ("0", "much", "-1"):
        with pytest.raises(BadConfiguration, match="MESOS_GPU_IMAGE_CACHE_MIB"):
            Store.of({"MESOS_GPU_IMAGE_CACHE_MIB": wrong}, str(tmp_path))
