"""Orders of the child of a probe, and its answers: a session and a driver of the test's own."""

import io
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from isolator.gpus import probing
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.nodes.health import Survey


class Ended(Exception):
    """The last order is done."""


class Session:
    """A session of NVML that is open when it can be; each survey takes what comes next."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self.steps = list(steps)
        self.is_open = False
        self.opened = 0
        self.asked: list[tuple[list[int], int | None]] = []

    def open(self) -> None:
        self.opened += 1

    def survey(self, skip: list[int], alone: int | None) -> Survey:
        self.asked.append((skip, alone))
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return Survey(source=step, driver_version="1", cuda_version="2", note="n")


@pytest.mark.parametrize(
    ("is_open", "orders", "listened"),
    [
        (True, [([], None), ([1], None), ([], 2)], [[]]),
        (True, [([], 3), ([2], None), ([], None)], [[2]]),
        (True, [([], 3), ([], -1), ([], 0)], []),
        (False, [([], None), ([], None), ([], 1)], []),
    ],
)
def test_probe_child_listens_once_with_its_first_session_for_all_cards(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_open: bool,
    orders: list[tuple[list[int], int | None]],
    listened: list[list[int]],
) -> None:
    session = Session(["nvml", Unavailable("it fails", remedy="reboot"), Ended()])
    session.is_open = is_open
    seen: list[list[int]] = []
    monkeypatch.setattr(probing, "Nvml", lambda _lib, _at: session)
    monkeypatch.setattr(probing, "_listen", lambda _nvml, _lib, skip, _say: seen.append(skip))
    monkeypatch.setattr("mesos_gpu.adapters.files.log_lines.to_stderr", lambda: None)

    def lines() -> Iterator[str]:
        yield from (json.dumps({"skip": skip, "alone": alone}) for skip, alone in orders)
        threading.Event().wait()

    monkeypatch.setattr(sys, "stdin", lines())
    with pytest.raises(Ended):
        probing.serve(None)
    assert (session.opened, session.asked, seen) == (3, orders, listened)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"source": "nvml", "driver_version": "1", "cuda_version": "2", "note": "n", "readings": []},
        {"failed": "it fails", "remedy": "reboot"},
    ]


def test_probe_child_ends_well_when_its_parent_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"skip": []}\n{"skip": [1]}\n'))
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    probing._hear(orders)
    assert [orders.get_nowait(), orders.get_nowait()] == [{"skip": []}, {"skip": [1]}]
    assert codes == [0]


class Lib:
    """A driver that has events, or none."""

    class NVMLError(Exception):
        """An error of NVML."""


@pytest.mark.parametrize("handles", [[], ["h"]])
@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("error", [None, Lib.NVMLError("no events")])
def test_probe_child_says_events_of_a_driver_that_has_some(
    monkeypatch: pytest.MonkeyPatch, handles: list[str], registers: bool, error: Exception | None
) -> None:
    class Events:
        def __init__(self, _lib: object) -> None:
            pass

        def register(self, registered: list[str]) -> bool:
            assert registered == handles
            if error is not None:
                raise error
            return registers

        def wait(self) -> Iterator[tuple[str, int]]:
            yield "GPU-a", 31
            yield "GPU-b", 62
            raise Lib.NVMLError("no more")

    class Threads(threading.Thread):
        def start(self) -> None:
            assert self.daemon
            self.run()

    class Handles:
        def handles(self, _skip: Sequence[int]) -> Iterator[tuple[int, str, str]]:
            return iter([(0, handle, "") for handle in handles])

    said: list[dict[str, Any]] = []
    monkeypatch.setattr(probing, "Events", Events)
    monkeypatch.setattr(threading, "Thread", Threads)
    probing._listen(Handles(), Lib, [], lambda **line: said.append(line))  # type: ignore[arg-type]
    listens = bool(handles) and registers and error is None
    assert said == ([{"event": "GPU-a", "xid": 31}, {"event": "GPU-b", "xid": 62}] if listens else [])
