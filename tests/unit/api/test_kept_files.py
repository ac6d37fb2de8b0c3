"""The sandbox of a job that has ended, by an agent that says what it likes."""

import io
import json
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.v1.files.kept import MOST_AT_ONCE, MOST_OF_ONE, UnderWay
from mesos_gpu.api.v1.files.sandbox import Sandbox, path_of
from mesos_gpu.api.v1.logs import LogReader
from mesos_gpu.errors import MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.channel.tree import Decoder, Entry, Mark, Record, Said

TASK = Task(
    TaskId("j.1"), AgentId("a"), "j.1", JobId("j"), TaskState.FINISHED, 1.0, agent_url="http://a:5051"
)
TOP = "/frameworks/f/executors/j.1/runs/latest"


class Agent(LogReader):
    """Answers by path; what is not said leads out."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self._answers = answers
        self.asked: list[str] = []

    def fetch(self, task: Task, path: str, query: Any, *, stream: bool = False) -> requests.Response:
        wanted = query.get("path", b"/state").decode().removeprefix(TOP)
        self.asked.append(f"{path} {wanted}")
        said = self._answers.get(wanted, 400)
        response = requests.Response()
        response.status_code = said if isinstance(said, int) else 200
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        response.raw = io.BytesIO(b"" if isinstance(said, int) else body)
        return response


def told(name: str, mode: str = "-rw-r--r--", uid: str = "ann", size: int = 1) -> dict[str, object]:
    return {
        "path": f"{TOP}/{name}",
        "mode": mode,
        "uid": uid,
        "gid": uid,
        "size": size,
        "mtime": 1.5,
        "nlink": 1,
    }


def records(agent: Agent, path: str = "", *, list_it: bool = False) -> list[Record]:
    sandbox = Sandbox(agent, TASK, "f", as_root=False)
    decoder = Decoder()
    pieces = sandbox.listed(path_of(path)) if list_it else sandbox.sent(path_of(path))
    return [record for piece in pieces for record in decoder.take(piece)]


@pytest.mark.parametrize("begun", [True, False])
def test_files_of_an_image_are_in_its_container_s_directory_if_it_was_begun(begun: bool) -> None:
    own = {"/containers/task": [told("containers/task/made")], "/containers/task/made": []}
    missing = {"/containers/task": 404, "/state": {}, "/gone/containers/task": 404}
    agent = Agent({"": [told("stderr")], "/stderr": [], **(own if begun else missing)})
    sandbox = Sandbox(agent, TASK, "f", as_root=False, nested=True)
    pieces, decoder = list(sandbox.listed(())), Decoder()
    names = entries([record for piece in pieces for record in decoder.take(piece)])
    assert names == [(), ("made",) if begun else ("stderr",)]


def left(stream: list[Record]) -> dict[tuple[str, ...], str]:
    return {each.what.path: each.what.why for each in stream if isinstance(each.what, Said)}


def entries(stream: list[Record]) -> list[tuple[str, ...]]:
    return [each.what.path for each in stream if isinstance(each.what, Entry)]


@pytest.mark.parametrize("list_it", [True, False])
def test_what_leads_out_is_not_told(list_it: bool) -> None:
    agent = Agent(
        {"": [told("shadow", "-rw-r-----", "root", 1234), told("mine")], "/mine": b"x" if not list_it else []}
    )
    seen = records(agent, list_it=list_it)
    assert entries(seen) == [(), ("mine",)]
    assert left(seen) == {("shadow",): "it is a link that leads out of the sandbox"}
    assert "/files/download /shadow" not in agent.asked


def test_what_is_no_file_is_never_opened() -> None:
    agent = Agent(
        {"": [told("fifo", "prw-r--r--"), told("root", "-rw-------", "root")], "/fifo": [], "/root": []}
    )
    seen = records(agent)
    assert left(seen)[("fifo",)] == "it is neither a file nor a directory"
    assert left(seen)[("root",)] == "it is root's, and the job could not read it"
    assert not any("download" in each for each in agent.asked)


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_an_agent_whose_lists_have_no_names_is_none(name: str) -> None:
    with pytest.raises(Unavailable, match="is no Mesos agent"):
        records(Agent({"": [told(name)]}))


@pytest.mark.parametrize(
    "answer", [[1], [{"path": "x"}], b"<html>", 7.5, [{**told("x"), "mtime": "1e999"}], b"[" * 100_000]
)
def test_an_agent_that_says_nonsense_is_none(answer: object) -> None:
    with pytest.raises(Unavailable, match="is no Mesos agent"):
        records(Agent({"": answer}))


@pytest.mark.parametrize(("status", "kind"), [(401, Unavailable), (500, Unavailable), (400, NotFound)])
def test_an_agent_that_refuses_is_named(status: int, kind: type[MesosGpuError]) -> None:
    with pytest.raises(kind):
        records(Agent({"": status}), list_it=True)


def test_a_file_whose_agent_fails_meanwhile_is_a_fault_and_the_rest_comes() -> None:
    seen = records(Agent({"": [told("a"), told("b")], "/a": 500, "/b": b"b"}))
    assert [each.mark for each in seen] == [
        Mark.ENTRY,
        Mark.FAULT,
        Mark.ENTRY,
        Mark.DATA,
        Mark.END,
        Mark.DONE,
    ]


@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "a\0b", "x" * 300])
def test_a_path_outside_is_refused(path: str) -> None:
    with pytest.raises(Refusal):
        path_of(path)


@pytest.mark.parametrize(
    ("path", "names"),
    [("", ()), (".", ()), ("a//b/", ("a", "b")), ("a/../b", ("b",)), ("/mnt/mesos/sandbox/a", ("a",))],
)
def test_a_path_inside_is_names(path: str, names: tuple[str, ...]) -> None:
    assert path_of(path) == names


def test_neither_one_caller_nor_all_have_more_copies_under_way_than_they_may() -> None:
    under_way = UnderWay()
    with ExitStack() as open_:
        for _ in range(MOST_OF_ONE):
            under_way.room("ann")
            open_.enter_context(under_way.one("ann"))
        with pytest.raises(Refusal, match=f"{MOST_OF_ONE} copies out of sandboxes of ann") as error:
            under_way.room("ann")
        assert error.value.http_status == 429
        for number in range(MOST_AT_ONCE - MOST_OF_ONE):
            under_way.room(f"user{number}")
            open_.enter_context(under_way.one(f"user{number}"))
        with pytest.raises(Refusal, match=f"and {MOST_AT_ONCE} of all"):
            under_way.room("bob")
    under_way.room("ann")
