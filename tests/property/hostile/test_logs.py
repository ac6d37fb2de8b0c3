"""What is read of logs: of agents that answer anything, and of files beside logs that a task may have written."""

import contextlib
import json
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesos_gpu.adapters.hosts.agents import Agents
from mesos_gpu.api.v1.logs import LOG_BOUNDS, LogReader
from mesos_gpu.cli import output
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.cuts import (
    HEAD_BYTES,
    begin_of,
    head,
    size_at,
    thinned,
    times_of,
    times_within,
    written_by,
)
from tests.property.hostile.test_mesos import as_bytes
from tests.property.hostile.words import BYTES, hostile

QUICK: Final = settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PAGE: Final = {"data": "some text\n", "offset": 0}
STATE: Final = {"frameworks": [{"id": "fw", "executors": [{"id": "e1", "directory": "/d"}]}]}
NUMBERS: Final = st.one_of(
    st.integers(-1, 5000).map(str),
    st.sampled_from(["253402300799999", "9" * 18, "9" * 19, "1e9", "-5", "", "٣"]),
)
LINES: Final = st.tuples(st.sampled_from(["o", "e", "", "x"]), NUMBERS, NUMBERS).map(" ".join)
TASK: Final = Task(
    TaskId("j.1"), AgentId("S0"), "e1", JobId("j"), TaskState.RUNNING, 0.0, hostname="h1", agent_url=""
)


@QUICK
@given(st.lists(LINES).map("\n".join).map(str.encode) | st.binary(max_size=200), st.integers(0, 6000))
def test_times_that_a_task_wrote_are_moments_that_can_be_shown(text: bytes, at: int) -> None:
    for data in (text, thinned(text)):
        times = times_of(data, "stdout")
        assert [size for size, _ in times] == sorted({size for size, _ in times})
        assert all(output.stamp(moment) for _, moment in times)
        assert size_at(times, at) >= 0
        assert all(each in times for each in times_within(times, at, at + 100))
        assert written_by(times, at) is None or output.stamp(written_by(times, at))


@QUICK
@given(st.binary(max_size=100), st.integers(0, HEAD_BYTES), st.integers(0, 10**18 - 1))
def test_the_beginning_of_a_log_says_where_it_goes_on_or_nothing(noise: bytes, at: int, begin: int) -> None:
    first = head(begin, 1)
    assert (said := begin_of(first)) is not None
    assert said[0] == begin
    for data in (noise, first[:at] + noise + first[at:]):
        told = begin_of(data)
        assert told is None or (told[0] >= 0 and len(told[1]) <= HEAD_BYTES + 1)


class Anything:
    """An exchange with an agent, which answers what it was given, whatever it is asked."""

    name = "h1"

    def __init__(self, status: int, bodies: list[bytes]) -> None:
        self._status, self._bodies, self._asked = status, bodies, 0

    def get(self, _path: str, _query: object, *, max_bytes: int) -> tuple[int, bytes]:
        self._asked += 1
        return self._status, self._bodies[min(self._asked, len(self._bodies)) - 1]


@QUICK
@given(
    st.sampled_from([200, 200, 200, 404, 500]),
    st.lists(hostile(PAGE, STATE, [PAGE]).map(as_bytes) | BYTES, min_size=1, max_size=3),
    st.sampled_from([-100, 0, 5]),
)
def test_answer_of_an_agent_is_output_or_a_reason(status: int, bodies: list[bytes], offset: int) -> None:
    agent = Agents().of(TASK, LOG_BOUNDS)
    agent._exchange = Anything(status, bodies)  # type: ignore[assignment]  # no socket says what hosts do here
    reader = LogReader(agent, "fw")
    for read in (
        lambda: json.dumps(vars_of(reader.read("stdout", offset, 50))),
        lambda: reader.times("stdout"),
    ):
        with contextlib.suppress(NotFound, Unavailable):
            read()


def vars_of(chunk: Any) -> dict[str, Any]:
    return {name: getattr(chunk, name) for name in ("data", "offset", "next_offset")}
