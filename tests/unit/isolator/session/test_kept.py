"""Reader of the sandboxes of ended tasks: its rights, its view, and the files that it leaves out."""

import json
import os
from pathlib import Path

import pytest

from isolator.host.sandbox import Sandbox
from isolator.host.sealing import seal
from isolator.runs.joining import KeptPlace
from isolator.session.opening import sandbox_of
from mesos_gpu.wire.channel.call import Call, Kept, decode_call, encode_call
from mesos_gpu.wire.channel.tree import Decoder, Entry, Mark, Record, Said

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: sandboxes are sealed by it")
UID = 61998
NO_READ = "the file belongs to root, and the job could not read it"


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """A sandbox with files of a task and of root."""
    path = tmp_path / "sandbox"
    path.mkdir()
    with Sandbox(str(path)) as place:
        place.admit(UID)
    (path / "out/d").mkdir(parents=True)
    for name, mode in (("out/own", 0o600), ("out/d/x", 0o640)):
        (path / name).write_text(name)
        (path / name).chmod(mode)
    (path / "out/link").symlink_to("d")
    (path / "out/away").symlink_to("/etc")
    for name in (".", "own", "d", "d/x"):
        os.chown(path / "out" / name, UID, UID)
    (path / "roots").write_text("root's")
    (path / "roots").chmod(0o600)
    return path


def ran(sandbox: Path, module: str, *words: str) -> bytes:
    place = KeptPlace(str(sandbox))
    (reads, writes), null = os.pipe(), os.open("/dev/null", os.O_RDWR)
    process = place.work(module, words, (null, writes, null))
    for each in (writes, null):
        os.close(each)
    place.close()
    with open(reads, "rb") as file:
        output = file.read()
    with process.output as told_by:
        assert told_by.read() == b""
    process.wait()
    return output


def records(sandbox: Path, *words: str, below: str = "", user: str = "") -> list[Record]:
    return [*Decoder().take(ran(sandbox, "isolator.session.inside.kept", *words, below, user))]


def told(stream: list[Record]) -> dict[tuple[str, ...], str]:
    return {record.what.path: record.what.why for record in stream if isinstance(record.what, Said)}


def entries(stream: list[Record]) -> list[tuple[str, ...]]:
    return [record.what.path for record in stream if isinstance(record.what, Entry)]


def test_kept_reader_has_no_capability_and_sees_the_sandbox_alone(sandbox: Path) -> None:
    (sandbox / "link").symlink_to("/etc/passwd")
    said = json.loads(ran(sandbox, "tests.unit.isolator.session.looking"))
    assert said == {
        "uid": 0,
        "groups": [],
        "capabilities": [0] * 6,
        "may have more": False,
        "root": ["link", "out", "roots"],
        "reached": [],
    }


def test_kept_reader_gives_sealed_files_that_the_job_could_read(sandbox: Path) -> None:
    seal(str(sandbox), 60)
    stream = records(sandbox, "get", "")
    assert b"".join(record.data for record in stream) == b"out/d/xout/own"
    assert told(stream) == {
        ("roots",): NO_READ,
        ("out", "away"): "it is a link to /etc, outside of the copied tree",
    }
    assert (told(records(sandbox, "list", "")), entries(records(sandbox, "list", ""))) == (
        {("roots",): NO_READ},
        [(), ("out",)],
    )
    assert b"root's" in b"".join(record.data for record in records(sandbox, "get", "", user="root"))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("roots", NO_READ),
        ("out/link/x", "link is a link to d: name its target"),
        ("out/away", "away is a link to /etc: name its target"),
        ("out/nothing", "No such file or directory"),
        ("out/own/x", "Not a directory"),
        ("../x", "Invalid cross-device link"),
    ],
)
def test_a_path_leads_through_no_link_and_nowhere_else(sandbox: Path, path: str, why: str) -> None:
    seal(str(sandbox), 60)
    for what in ("get", "list"):
        stream = records(sandbox, what, path)
        assert (told(stream), entries(stream)) == ({(): why}, [])


def test_kept_reader_leaves_out_unsealed_files(sandbox: Path) -> None:
    assert "the sandbox is not sealed yet" in told(records(sandbox, "get", "out/own"))[()]
    seal(str(sandbox), 60)
    os.chown(sandbox / "out/d", UID, UID)
    stream = records(sandbox, "get", "out")
    assert "the directory is not sealed yet" in told(stream)["d",]
    assert stream[-1].mark is Mark.DONE
    (sandbox / "out").chmod(0o777)
    assert "the directory is not sealed yet" in told(records(sandbox, "list", "out"))[()]


def test_an_image_has_its_own_below_if_it_was_begun(sandbox: Path) -> None:
    seal(str(sandbox), 60)
    assert ("out", "own") in entries(records(sandbox, "get", "", below="containers/task"))
    assert ("own",) in entries(records(sandbox, "get", "", below="out"))


def test_a_call_names_a_sandbox_and_no_other_directory() -> None:
    kept = Kept("agent-S1", "framework", "train-1.0", nested=True, as_root=False)
    call = Call("id", "monitor.1", "http://here", kept=kept.text)
    assert Kept.of(decode_call(encode_call(call, "secret"), "monitor.1", "secret").kept) == kept
    with pytest.raises(ValueError, match="not from the scheduler"):
        decode_call(encode_call(call, "secret").replace(b"train-1.0", b"train-2.0"), "monitor.1", "secret")
    assert sandbox_of(kept, "/w/slaves/agent-S2/frameworks/f/executors/m/runs/x") == (
        "/w/slaves/agent-S1/frameworks/framework/executors/train-1.0/runs/latest"
    )


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0"])
def test_an_id_that_is_no_name_is_refused(name: str) -> None:
    for ids in (("a", "f", name), ("a", name, "e"), (name, "f", "e")):
        with pytest.raises(ValueError, match="not a Mesos id"):
            Kept.of(Kept(*ids, nested=False, as_root=False).text)


@pytest.mark.long
@pytest.mark.parametrize("what", ["get", "list"])
def test_names_beyond_the_memory_of_the_monitor_are_not_listed(sandbox: Path, what: str) -> None:
    many = sandbox / "out/many"
    many.mkdir()
    first = many / ("x" * 200)
    first.touch()
    at = os.open(many, os.O_RDONLY)
    for number in range(60_000):
        os.link(first, f"{number:0200}", dst_dir_fd=at)
    os.close(at)
    seal(str(sandbox), 60)
    assert [*told(records(sandbox, what, "out/many")).values()][-1].startswith(
        "the directory has more entries than"
    )
    assert told(records(sandbox, "get", "out/own")) == {}


def test_file_of_several_names_that_only_root_reads_is_left_out(sandbox: Path, tmp_path: Path) -> None:
    """The file has the mode of /etc/shadow: root and a group may read it."""
    shadow = tmp_path / "shadow"
    shadow.write_text("root's")
    os.chown(shadow, 0, 42)
    shadow.chmod(0o640)
    (sandbox / "out/linked").hardlink_to(shadow)
    seal(str(sandbox), 60)
    stream = records(sandbox, "get", "out")
    assert told(stream)["linked",] == NO_READ
    assert b"root's" not in b"".join(record.data for record in stream)
