"""Users of a soak: what they ask for while nobody can keep it is asked again, and comes out as they meant it."""

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.soak.acts import Act
from tests.soak.load import Load
from tests.soak.rig import Rig

pytestmark = pytest.mark.on_change("soak")


def test_soak_load_sends_requests_about_one_host_in_turn() -> None:
    """A drain that is asked again until ZooKeeper is back is not answered after its end, which is asked for later."""
    answers, said = threading.Event(), list[str]()

    class Slow:
        def call(self, verb: str, path: str, *_: object, **__: object) -> dict[str, list[object]]:
            assert verb == "DELETE" or answers.wait(60)
            said.append(f"{verb} {path}")
            return {"nodes": []}

    def ask(do: Callable[[Any], object]) -> object:
        return do(Slow())

    rig = SimpleNamespace(
        ask=ask,
        hostname=lambda _: "a1",
        cluster=SimpleNamespace(agents=[None]),
        cards=[["GPU-1"]],
        schedulers=[],
    )
    load = Load(cast(Rig, rig))
    undo = load.do(Act("drain", 1, 0.0, 2.0))
    assert undo is not None
    undo()
    assert [each.end for each in load.excuses] == [math.inf], "it is drained until that is answered"
    answers.set()
    load.settle(60)
    load.close()
    (excuse,) = load.excuses
    assert excuse.begin <= excuse.end < math.inf
    assert (said, load.troubles) == ([f"{verb} /v1/nodes/a1/drain" for verb in ("POST", "DELETE")], [])
