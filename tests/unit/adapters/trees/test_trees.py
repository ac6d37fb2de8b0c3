"""Trees of files over a stream: they come out as they were, and a hostile sender writes no file outside."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.adapters.trees.receiving import PART, Receiving
from mesos_gpu.adapters.trees.sending import Sending, listed
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.tree import Decoder, Done, Entry, Mark, Record, Said

EVERY_BYTE = bytes(range(256))


def records_of(stream: Iterator[bytes]) -> list[Record]:
    decoder = Decoder()
    return [record for piece in stream for record in decoder.take(piece)]


def received(stream: Iterator[bytes], to: Path | str, name: str) -> tuple[Receiving, list[Said]]:
    said: list[Said] = []
    receiving = Receiving(str(to), name, said.append)
    try:
        for record in records_of(stream):
            receiving.take(record)
    finally:
        receiving.close()
    return receiving, said


def copied(source: Path, to: Path | str, name: str) -> tuple[Receiving, list[Said]]:
    return received(Sending(str(source)).records(), to, name)


def everything(root: Path) -> dict[str, tuple[int, object]]:
    entries: dict[str, tuple[int, object]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        what = (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else status.st_mtime_ns
        )
        entries[str(path.relative_to(root))] = (stat.S_IMODE(status.st_mode), what)
    return entries


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "a/b").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o555)
    (root / "every").write_bytes(EVERY_BYTE * 3000)
    (root / "a/run.sh").write_text("#!/bin/sh\n")
    (root / "a/run.sh").chmod(0o750)
    (root / "a/b/none").write_bytes(b"")
    (root / os.fsdecode(b"no-utf8-\xff\n")).write_text("x")
    (root / "a/b/up").symlink_to("../../every")
    os.utime(root / "every", ns=(1, 1_600_000_000_123_456_789))
    os.utime(root / "a/b", ns=(1, 1_500_000_000_000_000_000))
    return root


def test_tree_directory_comes_out_as_it_was(source: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.mkdir()
    receiving, said = copied(source, to, "source")
    assert said == []
    assert everything(to / "source") == everything(source)
    assert (to / "source/every").stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert receiving.sent == Done(4, 768011, 0)
    assert (receiving.files, receiving.bytes) == (4, 768011)


@pytest.mark.parametrize(
    ("to", "name", "at"),
    [
        ("new", "source", "new"),
        ("there", "source", "there/source"),
        ("new", "", "new"),
        ("there", "", "there"),
    ],
)
def test_tree_directory_target_depends_on_an_existing_directory(
    source: Path, tmp_path: Path, to: str, name: str, at: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/kept").write_text("kept")
    copied(source, tmp_path / to, name)
    assert (tmp_path / at / "a/run.sh").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "there/kept").read_text() == "kept"


@pytest.mark.parametrize(("to", "at"), [("new", "new"), ("there", "there/every"), ("there/old", "there/old")])
def test_tree_file_target_depends_on_an_existing_directory(
    source: Path, tmp_path: Path, to: str, at: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/old").write_text("old")
    copied(source / "every", tmp_path / to, "every")
    assert (tmp_path / at).read_bytes() == EVERY_BYTE * 3000


def test_tree_link_is_replaced_and_its_target_not_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to("old")
    copied(source / "every", tmp_path / "link", "every")
    assert (tmp_path / "old").read_text() == "old"
    assert (tmp_path / "link").read_bytes() == EVERY_BYTE * 3000


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "why"),
    [(fifo, "that is not a file"), (device, "that is not a file"), (directory, "a directory of that name")],
)
def test_tree_replaces_only_files(
    source: Path, tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    (tmp_path / "there").mkdir()
    make(tmp_path / "there/every")
    before = (tmp_path / "there/every").lstat()
    receiving, said = copied(source / "every", tmp_path / "there", "every")
    assert why in said[0].why
    assert (receiving.files, receiving.faults) == (0, 1)
    assert os.path.samestat((tmp_path / "there/every").lstat(), before)
    assert os.listdir(tmp_path / "there") == ["every"]


def test_tree_omits_and_reports_links_outside_and_special_files(tmp_path: Path) -> None:
    root = tmp_path / "source"
    root.mkdir()
    for name, target in {
        "abs": "/etc/passwd",
        "up": "../x",
        "round": "a/../../x",
        "in": "a/x",
        "gone": "x",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    said = [each for each in records_of(Sending(str(root)).records()) if each.mark is Mark.LEFT]
    assert [each.what.path[0] for each in said if isinstance(each.what, Said)] == [
        "abs",
        "fifo",
        "round",
        "up",
    ]
    copied(root, tmp_path / "to", "")
    assert sorted(os.listdir(tmp_path / "to")) == ["gone", "in"]


def test_tree_entry_that_cannot_be_read_is_reported_and_the_rest_sent(source: Path, tmp_path: Path) -> None:
    sending = Sending(str(source / "nothing"))
    assert [each.mark for each in records_of(sending.records())] == [Mark.FAULT, Mark.DONE]
    assert sending.faults == 1
    for path in ("/dev/null", "/dev/full"):
        assert Sending(path).faults == 0
        assert records_of(Sending(path).records())[0].what == Said((), "it is neither a file nor a directory")


def test_tree_file_that_gets_shorter_is_not_kept(source: Path, tmp_path: Path) -> None:
    def stream() -> Iterator[bytes]:
        for number, record in enumerate(Sending(str(source / "every")).records()):
            if number == 1:
                os.truncate(source / "every", 10)
            yield record

    (tmp_path / "old").write_text("old")
    receiving, _ = received(stream(), tmp_path / "old", "every")
    assert receiving.sent == Done(0, 0, 1)
    assert (tmp_path / "old").read_text() == "old"
    assert not list(tmp_path.glob(PART + "*"))


def test_tree_file_that_grows_is_sent_at_its_first_size(source: Path, tmp_path: Path) -> None:
    def stream() -> Iterator[bytes]:
        for number, record in enumerate(Sending(str(source / "every")).records()):
            if number == 1:
                with open(source / "every", "ab") as file:
                    file.write(b"more")
            yield record

    received(stream(), tmp_path / "new", "every")
    assert (tmp_path / "new").read_bytes() == EVERY_BYTE * 3000


def test_tree_file_that_is_cut_off_gets_no_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to/every").write_text("old")
    records = records_of(Sending(str(source / "every")).records())
    receiving = Receiving(str(tmp_path / "to"), "every", lambda _: None)
    for record in records[:3]:
        receiving.take(record)
    assert len(os.listdir(tmp_path / "to")) == 2
    assert (tmp_path / "to/every").read_text() == "old"
    receiving.close()
    assert os.listdir(tmp_path / "to") == ["every"]
    assert (tmp_path / "to/every").read_text() == "old"
    assert receiving.sent is None


def test_tree_on_a_full_disk_is_reported_and_leaves_no_file(source: Path, tmp_path: Path) -> None:
    said: list[Said] = []
    receiving = Receiving(str(tmp_path / "new"), "every", said.append)
    records = records_of(Sending(str(source / "every")).records())
    receiving.take(records[0])
    full = os.open("/dev/full", os.O_WRONLY)
    assert receiving._part is not None
    os.dup2(full, receiving._part.fd)
    os.close(full)
    for record in records[1:]:
        receiving.take(record)
    assert said == [Said((), "No space left on device")]
    assert not list(tmp_path.glob(PART + "*"))
    assert not (tmp_path / "new").exists()


# --- who sends nonsense


def hostile(*records: bytes) -> Iterator[bytes]:
    yield from records
    yield tree.done(Done(0, 0, 0))


def test_tree_link_sent_before_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "to/d").mkdir(parents=True)
    (tmp_path / "to/d/way").symlink_to("../../outside")
    root, way = Entry((), "dir", 0o755), Entry(("way",), "dir", 0o755)
    file = Entry(("way", "x"), "file", 0o644)
    stream = hostile(tree.entry(root), tree.entry(way), tree.entry(file), tree.data(b"x"), tree.end())
    receiving, said = received(stream, tmp_path / "to", "d")
    assert [each.path for each in said] == [("way",)]
    assert os.listdir(tmp_path / "outside") == []
    assert receiving.faults == 1


@pytest.mark.parametrize("target", ["/etc", "..", "../x", "a/../../x", ""])
def test_tree_link_that_leads_outside_is_not_made(tmp_path: Path, target: str) -> None:
    stream = hostile(tree.entry(Entry((), "dir", 0o755)), tree.entry(Entry(("l",), "link", target=target)))
    _, said = received(stream, tmp_path / "to", "")
    assert "outside of the copied tree" in said[0].why
    assert os.listdir(tmp_path / "to") == []


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "x" * 256])
def test_tree_entry_with_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="invalid name"):
        list(Decoder().take(tree.entry(Entry((name,), "file"))))


@pytest.mark.parametrize(
    "entries",
    [
        [Entry(("a",), "file")],
        [Entry((), "dir"), Entry((), "dir")],
        [Entry((), "dir"), Entry(("a", "b"), "file")],
        [Entry((), "file"), Entry(("b",), "file")],
    ],
)
def test_tree_entries_without_order_are_refused(tmp_path: Path, entries: list[Entry]) -> None:
    with pytest.raises(ValueError, match="entr"):
        received(hostile(*map(tree.entry, entries)), tmp_path / "to", "")
    assert not list(tmp_path.rglob("*.*"))


def test_tree_modes_are_permissions_only(tmp_path: Path) -> None:
    received(hostile(tree.entry(Entry((), "file", 0o7777)), tree.data(b"x"), tree.end()), tmp_path / "x", "x")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o777


@given(st.lists(st.binary(max_size=40)))
def test_tree_decoder_takes_records_or_refuses_any_bytes(pieces: list[bytes]) -> None:
    decoder = Decoder()
    try:
        for piece in pieces:
            list(decoder.take(piece))
    except ValueError:
        return
    assert not decoder.is_whole


@given(st.integers(1, 50))
def test_tree_decoder_is_independent_of_how_bytes_are_cut(size: int) -> None:
    records = [
        Record(Mark.ENTRY, Entry(("a", "\udcff"), "link", 0o644, 3, 5, "ß", 1, 2)),
        Record(Mark.DATA, data=EVERY_BYTE),
        Record(Mark.LEFT, Said(("x",), "why")),
        Record(Mark.DONE, Done(1, 2, 3)),
    ]
    stream = b"".join(map(encoded, records))
    decoder = Decoder()
    cut = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [record for piece in cut for record in decoder.take(piece)] == records
    assert decoder.is_whole


def encoded(record: Record) -> bytes:
    if isinstance(record.what, Entry):
        return tree.entry(record.what)
    if isinstance(record.what, Said):
        return tree.said(record.mark, record.what)
    return tree.done(record.what) if isinstance(record.what, Done) else tree.data(record.data)


def test_tree_list_has_the_entries_of_one_directory(source: Path) -> None:
    (source / "out").symlink_to("/etc/passwd")
    records = records_of(listed(str(source)))
    entries = {each.what.path: each.what for each in records if isinstance(each.what, Entry)}
    assert entries[("out",)].target == "/etc/passwd"
    assert entries[("a",)].kind == "dir"
    assert entries[("every",)].size == 768000
    assert entries[("every",)].uid == os.geteuid()
    assert ("a", "run.sh") not in entries
    assert records[-1].what == Done(0, 0, 0)


@pytest.mark.parametrize("letter", ["é", "\x01", "\udcff", "字"])
def test_tree_longest_paths_come_out_as_they_were(letter: str) -> None:
    size = len(letter.encode(errors="surrogateescape"))
    path = (letter * (tree.MAX_NAME // size),) * tree.MAX_DEPTH
    target = letter * (4095 // size)
    (record,) = records_of(iter([tree.entry(Entry(path, "link", 0o777, 1 << 40, 1 << 62, target, 1, 1))]))
    assert isinstance(record.what, Entry)
    assert (record.what.path, record.what.target) == (path, target)
    (record,) = records_of(iter([tree.said(Mark.FAULT, Said(path, letter * 1000))]))
    assert record.what == Said(path, letter * 1000)
