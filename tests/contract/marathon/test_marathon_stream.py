"""Large answers come in pieces, small ones whole, and both say the same."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import Response

from mesos_gpu.api.http.answers import CHUNK, large_answer
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import CMD, Marathon

APPS = 400  # each is printed in some 1.5 kB


@pytest.fixture(scope="module")
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    below = {"id": "/many/inner", "apps": [{"id": f"b{i}", **CMD} for i in range(2)]}
    apps = [{"id": f"a{i}", **CMD, "labels": {"of": "ä" * 10}} for i in range(APPS)]
    rig.ask("PUT", "/v2/groups/many", json={"apps": apps, "groups": [below]})
    rig.create("/few")

    def all_wait() -> bool:
        rig.clock.time += 1.0
        return len(rig.ask("GET", "/v2/queue")["queue"]) == APPS + 3

    wait_until("all apps wait in the queue", all_wait)
    yield rig
    rig.close()


@pytest.mark.parametrize(
    ("path", "key", "count"),
    [
        ("/v2/apps", "apps", APPS + 3),
        ("/v2/apps/many/*", "*", APPS + 2),
        ("/v2/queue", "queue", APPS + 3),
        ("/v2/groups/many", "apps", APPS),
    ],
)
def test_much_comes_in_pieces(rig: Marathon, path: str, key: str, count: int) -> None:
    answer = rig.call("GET", path)
    assert answer.headers["Content-Type"] == "application/json"
    assert len(answer.json()[key]) == count
    assert len(answer.content) > CHUNK
    assert (answer.headers.get("Transfer-Encoding"), answer.headers.get("Content-Length")) == (
        "chunked",
        None,
    )


def test_answer_to_head_of_much_has_no_body(rig: Marathon) -> None:
    head = rig.call("HEAD", "/v2/apps")
    assert (head.status_code, head.content) == (200, b"")


def test_little_comes_whole(rig: Marathon) -> None:
    for path in ("/v2/apps?id=few", "/v2/tasks", "/v2/groups/many/inner", "/v2/apps/few/tasks"):
        answer = rig.call("GET", path)
        assert int(answer.headers["Content-Length"]) == len(answer.content), path
    inner = rig.ask("GET", "/v2/groups/many/inner")
    assert ([app["id"] for app in inner["apps"]], inner["groups"]) == (
        ["/many/inner/b0", "/many/inner/b1"],
        [],
    )


def test_pieces_say_what_the_whole_says(rig: Marathon) -> None:
    group = rig.ask("GET", "/v2/groups/many?embed=group.groups&embed=group.apps")
    one = rig.ask("GET", "/v2/groups/many/inner")
    assert group["groups"] == [one]
    assert [app["labels"]["of"] for app in group["apps"]] == ["ä" * 10] * APPS


def test_the_first_piece_is_sent_before_the_last_is_printed() -> None:
    printed, sent = [0], list[tuple[int, bytes]]()

    def items() -> Iterator[Any]:
        for i in range(2000):
            printed[0] += 1
            yield {
                "i": i,
                "text": 'é"' * 200,
                "inner": (each for each in (1, {"a": (each for each in tuple[int, ...]())})),
            }

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            sent.append((printed[0], message["body"]))

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def run() -> Response:
        answer = await large_answer({"version": 1, "items": items(), "last": [2]})
        await answer({"type": "http", "method": "GET"}, receive, send)
        return answer

    asyncio.run(run())
    assert sent[0][0] < 2000
    assert all(len(body) < 4 * CHUNK for _, body in sent), "no piece is much larger than it should be"
    whole = json.loads(b"".join(body for _, body in sent))
    assert whole["items"][1999] == {"i": 1999, "text": 'é"' * 200, "inner": [1, {"a": []}]}
    assert (len(whole["items"]), whole["version"], whole["last"]) == (2000, 1, [2])
