"""Limits of connections by address: idle connections are closed first, and requests of addresses begin in turn."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network

import pytest

from mesos_gpu.adapters.proofs.peers import LocalPeer
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.api.http import bounds
from mesos_gpu.api.http.bounds import Bounded, ConnectionLimits, Turns
from mesos_gpu.api.http.server import Server, listen
from tests.conftest import wait_until
from tests.contract.rig import Rig

HALF = b"GET /v1/health HTTP/1.1\r\nX-"
SLOW_BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
IDLE = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no connection end by its time: these tests are about numbers of connections."""
    monkeypatch.setattr(bounds, "KEEP_S", 3600)
    monkeypatch.setattr(bounds, "HEAD_S", 3600.0)
    monkeypatch.setattr(bounds, "BODY_S", 3600.0)


@contextmanager
def served(crowd: ConnectionLimits | None = None) -> Iterator[Rig]:
    rig = Rig()
    rig.server.stop()
    rig.server = Server(rig.app, listen("127.0.0.1", 0), crowd=crowd)
    rig.url = rig.server.url
    try:
        yield rig
    finally:
        rig.close()


def opened(port: int, address: str, said: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 30, source_address=(address, 0))
    client.sendall(said)
    return client


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            return False
        return False
    return True


def test_a_new_connection_looks_at_few_others_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    waits = vars(Bounded)["waits"].fget

    def counted(connection: Bounded) -> bool:
        nonlocal looked
        looked += 1
        return bool(waits(connection))

    monkeypatch.setattr(Bounded, "waits", property(counted))
    monkeypatch.setattr(bounds, "MAX_CONNECTIONS", 200)
    with served() as rig, ExitStack() as held:
        for n in range(200):
            held.enter_context(opened(rig.server.port, f"127.0.0.{2 + n % 8}", HALF))
        wait_until("all are there", lambda: rig.server.connections == 200, 30)
        looked = 0
        for n in range(100):
            held.enter_context(opened(rig.server.port, f"127.0.0.{2 + n % 8}", HALF))
        assert rig.call("GET", "/v1/health").status_code == 200
        assert looked < 100 * 8


@pytest.mark.parametrize(
    "said", [b"", HALF, SLOW_BODY, IDLE], ids=["nothing", "half a head", "half a body", "idle"]
)
def test_an_address_with_too_many_connections_loses_its_oldest(said: bytes) -> None:
    with served(ConnectionLimits(most_of_address=5)) as rig, ExitStack() as held:
        other = held.enter_context(opened(rig.server.port, "127.0.0.3", HALF))
        clients = [held.enter_context(opened(rig.server.port, "127.0.0.2", said)) for _ in range(8)]
        wait_until("the first three are ended", lambda: not any(map(is_open, clients[:3])), 30)
        assert all(map(is_open, [other, *clients[3:]]))


def test_connections_of_a_trusted_proxy_are_not_counted_by_its_address() -> None:
    proxies = Proxies((ip_network("127.0.0.2/32"),))
    with served(ConnectionLimits(most_of_address=5, proxies=proxies)) as rig, ExitStack() as held:
        clients = [held.enter_context(opened(rig.server.port, "127.0.0.2", HALF)) for _ in range(20)]
        wait_until("all are taken", lambda: rig.server.connections == 20, 30)
        assert all(map(is_open, clients))


def test_connections_are_counted_by_networks_of_ipv6_and_users_of_this_host() -> None:
    crowd = ConnectionLimits(proxies=Proxies((ip_network("10.0.0.0/8"),), (33,)))
    assert crowd.key_of("2001:db8::1") == crowd.key_of("2001:db8::2") != crowd.key_of("2001:db8:0:1::1")
    assert crowd.key_of("::ffff:192.0.2.1") == crowd.key_of("192.0.2.1") == "192.0.2.1"
    assert crowd.key_of("10.1.2.3") != crowd.key_of("10.1.2.3"), "a proxy brings many clients"
    user, root, web = (LocalPeer(1, uid, uid) for uid in (1000, 0, 33))
    assert crowd.key_of("", user) == crowd.key_of("", user) == "uid 1000"
    for spared in (root, web, LocalPeer(1, os.geteuid(), 0)):
        assert crowd.key_of("", spared) != crowd.key_of("", spared)
    task = LocalPeer(1, 0, 0, "it is a task")
    assert crowd.key_of("", task) == crowd.key_of("", task)


def test_requests_begin_by_turns_of_addresses() -> None:
    begun: list[str] = []

    async def begin() -> None:
        turns = Turns()
        for n in range(40):
            turns.take("flood", lambda n=n: begun.append(f"flood {n}"))  # type: ignore[misc]
        turns.take("other", lambda: begun.append("other"))
        assert begun == ["flood 0", "other"]
        await asyncio.sleep(0)
        assert begun == ["flood 0", "other", "flood 1"]
        turns.take("other", lambda: begun.append("other"))
        assert begun[-1] == "other"
        for _ in range(40):
            await asyncio.sleep(0)
        assert begun.count("other") == 2
        assert [each for each in begun if each != "other"] == [f"flood {n}" for n in range(40)]
        turns.take("flood", lambda: begun.append("again"))
        assert begun[-1] == "again"

    asyncio.run(begin())


def test_caller_with_many_connections_is_answered_in_turn_with_others() -> None:
    """An address has 16 connections with 16 requests each; another address has one connection with one request."""
    served_to: list[str] = []
    with served() as rig, ExitStack() as held:
        inner = rig.app.middleware_stack
        assert inner is not None or rig.call("GET", "/ping").ok
        inner = rig.app.middleware_stack
        assert inner is not None

        async def noted(scope, receive, send):  # type: ignore[no-untyped-def]
            served_to.append(scope["client"][0])
            await inner(scope, receive, send)

        rig.app.middleware_stack = noted
        port = rig.server.port
        for _ in range(16):
            held.enter_context(opened(port, "127.0.0.2", IDLE * 16))
        other = held.enter_context(opened(port, "127.0.0.3", IDLE))
        assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        wait_until("all are answered", lambda: len(served_to) == 257, 30)
    assert set(served_to) == {"127.0.0.2", "127.0.0.3"}
