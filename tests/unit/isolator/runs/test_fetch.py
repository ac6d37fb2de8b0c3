"""What a job may fetch, the executor's part in it, and the embedded Mesos' fetcher."""

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isolator.confinement.enclosure import Enclosure
from isolator.host.not_started import NotStarted
from isolator.runs.fetching import Fetch
from isolator.runs.launcher import Helped, Order
from mesos_gpu.libmesos import fetcher
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.jobs import spec_from_mapping

GOOD = [
    Artifact("https://host:8080/path/file.tgz?a=b"),
    Artifact("hdfs://name/model"),
    Artifact("/opt/model.bin"),
    Artifact("http://host/index.html", dest_path="i.html"),
    Artifact("http://host/a", dest_path="b/c.tgz"),
]


@pytest.mark.parametrize("artifact", GOOD)
def test_fetch_of_allowed_uris_has_no_problem(artifact: Artifact) -> None:
    assert artifact.problem == ""
    assert artifact.as_uri()["value"] == artifact.uri


@pytest.mark.parametrize(
    "artifact",
    [
        *map(Artifact, ("", "file", "a/file", " /etc/x", "http://host", "http://host/", "http://h/a b")),
        *map(Artifact, ("http://h/it's", "http://h/a\\b", "http://h/..", "/", "http://h/stdout")),
        *(Artifact("http://h/a", dest_path=p) for p in ("", "/a", "../a", "a/../../b", "a/", "./a", "a\0")),
        *(
            Artifact("http://h/a", dest_path=p)
            for p in ("stderr", "executor.log", "containers/x", "hostfile")
        ),
    ],
)
def test_fetch_of_other_uris_has_a_problem(artifact: Artifact) -> None:
    assert artifact.problem


def test_fetch_problems_are_said_of_a_job_request() -> None:
    request = {"command": "true", "fetch": ["http://h/a", {"uri": "http://h/b", "executable": True}]}
    made = spec_from_mapping(request)
    assert not isinstance(made, list)
    assert made.fetch == (Artifact("http://h/a"), Artifact("http://h/b", executable=True))
    problems = spec_from_mapping(
        {"command": "true", "fetch": [3, "b", {"uri": "http://h/b", "cache": 1, "x": 1}, {"dest_path": "y"}]}
    )
    assert isinstance(problems, list)
    paths = ["/fetch/0", "/fetch/1", "/fetch/2/x", "/fetch/2/cache", "/fetch/3/uri"]
    assert [problem.path for problem in problems] == paths


# --- the executor


class Program:
    """In place of the process that runs mesos-fetcher: what it ends with, and what it puts where it is told."""

    def __init__(self, code: int = 0, said: str = "", **files: str) -> None:
        self.orders, self._helped, self._files = list[Order](), Helped(code, said), files

    def help(self, order: Order) -> Helped:
        self.orders.append(order)
        for name, text in self._files.items():
            Path(self.info["sandbox_directory"], name).write_text(text)
        return self._helped

    def abort(self) -> None:
        raise AssertionError("nothing here is too much")

    @property
    def info(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = json.loads(self.orders[-1].env["MESOS_FETCHER_INFO"])
        return told


def fetch(
    program: Program,
    sandbox: Path,
    nested: str = "",
    uris: Sequence[str] = ("http://h/a", "http://h/b"),
    **env: str,
) -> None:
    own = {
        **env,
        "MESOS_SANDBOX": str(sandbox), "MESOS_GPU_ALLOW_ROOT": "host", "MESOS_GPU_FETCHER": "/there/mesos-fetcher",
        "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "secret", "PATH": "/bin",
    }  # fmt: skip
    plan = Assignment("j", 1, "true", fetch=tuple({"value": uri, "cache": True} for uri in uris))
    enclosure = Enclosure("c", isolated=False, cgroup=None, devices=(), extra=(), gpu_major=195)
    Fetch(plan, "task-1", program, enclosure, own).run(nested)  # type: ignore[arg-type]


def test_the_executor_moves_what_was_fetched(tmp_path: Path) -> None:
    program = Program(a="A", b="B", stderr="its own words")
    fetch(program, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "containers"]
    assert not list((tmp_path / "containers").iterdir())
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("A", "B")
    (order,) = program.orders
    assert order.argv == ("/there/mesos-fetcher",)
    assert {*order.env} == {"PATH", "MESOS_FETCHER_INFO", "MESOS_TASK_ID"}, "no token of the executor's"
    assert [(item["uri"]["value"], item["action"]) for item in program.info["items"]] == [
        ("http://h/a", "BYPASS_CACHE"), ("http://h/b", "BYPASS_CACHE"),
    ]  # fmt: skip


def test_file_that_contains_the_programs_environment_contains_no_password_of_a_proxy(tmp_path: Path) -> None:
    """mesos-fetcher copies a file by cp(1), whose own environment /proc/self/environ is."""
    program = Program()
    net = ("https://h/a", "HTTP://h/b")
    others = ("/proc/self/environ", "file:///tmp/link", "hdfs://h/c", " http://h/d")
    proxies = {"https_proxy": "http://user:password@h", "NO_PROXY": "h"}
    fetch(program, tmp_path, uris=(net[0], *others[:2], net[1], *others[2:]), **proxies)
    seen = [(_values(order), proxies.keys() & order.env.keys()) for order in program.orders]
    assert seen == [
        ([net[0]], {*proxies}), ([*others[:2]], set()), ([net[1]], {*proxies}), ([*others[2:]], set()),
    ]  # fmt: skip


def _values(order: Order) -> list[str]:
    return [item["uri"]["value"] for item in json.loads(order.env["MESOS_FETCHER_INFO"])["items"]]


def test_fetched_files_of_an_image_are_moved_to_its_sandbox(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    fetch(Program(a="A"), tmp_path, "task")
    assert (tmp_path / "containers" / "task" / "a").read_text() == "A"


def test_fetch_replaces_no_file_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "executor.log").write_text("its own")
    with pytest.raises(NotStarted, match=r"executor\.log was fetched"):
        fetch(Program(0, "", a="A", **{"executor.log": "mine"}), tmp_path)
    assert (tmp_path / "executor.log").read_text() == "its own"


def test_a_link_in_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere, sandbox = tmp_path / "elsewhere", tmp_path / "sandbox"
    sandbox.mkdir()
    (elsewhere / "task").mkdir(parents=True)
    (sandbox / "containers").symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        fetch(Program(a="A"), sandbox)
    assert not (elsewhere / "task" / "a").exists()
    assert [path.name for path in sandbox.iterdir()] == ["containers"]


MESOS = (
    "I1121 10:00:00.1 7 fetcher.cpp:562] Fetcher Info: {}\n"
    "E1121 10:00:00.2 7 fetcher.cpp:613] EXIT: Failed to fetch 'http://h/b': received HTTP return code 404\n"
)


def test_error_of_the_fetcher_is_the_reason_why_the_task_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="could not fetch http://h/b: received HTTP return code 404") as said:
        fetch(Program(1, MESOS, a="A"), tmp_path)
    assert said.value.outcome == Outcome()
    assert [path.name for path in tmp_path.rglob("*")] == ["containers"]


def test_fetcher_failure_without_a_message_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises(
        NotStarted, match="did not fetch http://h/a, http://h/b: signal 9: half a line"
    ) as said:
        fetch(Program(-9, "first\nhalf a line\n"), tmp_path)
    assert said.value.outcome.infrastructure


# --- the embedded Mesos' fetcher


def fetched(monkeypatch: pytest.MonkeyPatch, sandbox: Path, uri: str, **more: object) -> int:
    item = {"uri": {"value": uri, **more}, "action": "BYPASS_CACHE"}
    monkeypatch.setenv(fetcher.INFO, json.dumps({"sandbox_directory": str(sandbox), "items": [item]}))
    return fetcher.main()


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    path = tmp_path / "sandbox"
    path.mkdir()
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.tar.gz", "a.zip", "f.gz"])
def test_archives_are_extracted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sandbox: Path, name: str
) -> None:
    source = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(source, "w") as packed:
            packed.writestr("f", "text")
    elif name == "f.gz":
        source.write_bytes(gzip.compress(b"text"))
    else:
        with tarfile.open(source, "w" if name == "a.tar" else "w:gz") as archive:
            member = tarfile.TarInfo("f")
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
    assert fetched(monkeypatch, sandbox, f"file://localhost{source}") == 0
    assert (sandbox / "f").read_text() == "text"
    assert (sandbox / name).exists()


def test_a_program_is_not_extracted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sandbox: Path) -> None:
    (tmp_path / "run.tgz").write_text("#!/bin/sh\n")
    more = {"executable": True, "output_file": "bin/run"}
    assert fetched(monkeypatch, sandbox, str(tmp_path / "run.tgz"), **more) == 0
    assert os.access(sandbox / "bin" / "run", os.X_OK)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("/nowhere/file", "No such file"),
        ("hdfs://h/file", "no Hadoop client"),
        ("file://other/file", "absolute paths"),
        ("http://127.0.0.1:1/file", "refused"),
        ("{here}/broken.tgz", "tar: "),
        ("{here}/broken.zip", "not a zip file"),
    ],
)
def test_fetch_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sandbox: Path,
    capfd: pytest.CaptureFixture[str],
    uri: str,
    why: str,
) -> None:
    for name in ("broken.tgz", "broken.zip"):
        (tmp_path / name).write_text("no archive")
    uri = uri.format(here=tmp_path)
    assert fetched(monkeypatch, sandbox, uri) == 1
    said = capfd.readouterr().err
    assert said.startswith(f"Failed to fetch '{uri}': ")
    assert why in said
