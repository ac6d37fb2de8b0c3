"""Slow and idle connections, and floods of requests without a name, at a real scheduler that answers other callers
meanwhile."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import requests

from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.contract.abuse.slow_clients import Slowness, flooded
from tests.contract.abuse.test_slow import percentile
from tests.e2e.abuse.test_fuzz import Beside

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ATTACKER: Final = "127.0.0.2"
MAX_WAITING: Final = 100  # connections of one address that wait for their client
HALF_OPEN: Final = 2000
BOUND_MS: Final = 200.0


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(1)]) as stack:
        yield stack


def times(url: str, count: int) -> list[float]:
    """Return the sorted times in which another caller gets `/v1/health`, on one connection and on new ones."""
    beside = Beside(url, "/v1/health")
    for _ in range(count):
        beside.ask_once()
    return sorted(beside.took_ms)


def opened(port: int, said: bytes) -> socket.socket:
    client = socket.socket()
    client.settimeout(30)
    client.bind((ATTACKER, 0))
    client.connect(("127.0.0.1", port))
    client.sendall(said)
    return client


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextmanager
def held(clients: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in clients:
            each.close()


def test_half_open_connections_of_an_address_are_bounded(stack: Stack) -> None:
    clients: list[socket.socket] = []
    with held(clients):
        for _ in range(MAX_WAITING + 50):
            clients.append(opened(stack.scheduler.port, Slowness.HEAD.value))
        wait_until("the oldest are ended", lambda: sum(map(is_open, clients)) <= MAX_WAITING)
        assert requests.get(f"{stack.url}/v1/health", timeout=60).status_code == 200
        assert is_open(clients[-1]), "the newest is kept"


@pytest.mark.long
def test_half_open_connections_delay_no_other_caller(stack: Stack) -> None:
    port, alone = stack.scheduler.port, times(stack.url, 100)
    clients: list[socket.socket] = []
    with held(clients):
        for _ in range(HALF_OPEN):
            clients.append(opened(port, Slowness.HEAD.value))
        beside = times(stack.url, 100)
        left = sum(map(is_open, clients))
    assert left <= MAX_WAITING
    assert percentile(beside, 99) < max(BOUND_MS, 3 * percentile(alone, 99)), (alone[-5:], beside[-5:])


@pytest.mark.long
def test_connections_that_are_opened_again_at_once_delay_no_other_caller(stack: Stack) -> None:
    alone = times(stack.url, 100)
    with flooded(stack.scheduler.port, HALF_OPEN, Slowness.HEAD, ATTACKER) as ended:
        beside = times(stack.url, 100)
    assert ended[0] >= HALF_OPEN - MAX_WAITING
    assert percentile(beside, 90) < max(BOUND_MS, 10 * percentile(alone, 90)), (alone[-5:], beside[-5:])


def test_connections_with_an_answer_under_way_are_not_counted(stack: Stack) -> None:
    """Event streams are limited by `--streams` instead."""
    request = b"GET /v2/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    clients: list[socket.socket] = []
    with held(clients):
        for _ in range(MAX_WAITING + 20):
            clients.append(opened(stack.scheduler.port, request))
            assert clients[-1].recv(4096).startswith(b"HTTP/1.1 200 ")
        assert requests.get(f"{stack.url}/v1/health", timeout=60).status_code == 200
        assert all(map(is_open, clients))
