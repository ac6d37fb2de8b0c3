"""Where webhooks may be sent: what the operator lists, at the addresses that were checked, and in bounded time."""

import base64
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.hooks.lookups import MAX_AT_ONCE
from mesos_gpu.adapters.hooks.receivers import receivers
from mesos_gpu.adapters.hooks.send import Answer, Sender, _break, signature, text_of
from mesos_gpu.errors import NotAccepted
from tests.certificates import Authority, context_of
from tests.conftest import wait_until
from tests.contract.events.receiver import Receiver

NAMES = ["hooks.example.com", "*.example.org:8443"]
NUMBERS = ["10.1.0.0/16:*", "127.0.0.1:9000", "[2001:db8::1]:443"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://hooks.example.com/a?b=c", ""),
        ("https://a.example.org:8443/", ""),
        ("https://hooks.example.com:8443/", "not an allowed receiver"),
        ("https://example.org:8443/", "not an allowed receiver"),
        ("https://2130706433/", "not an allowed receiver"),
        ("http://hooks.example.com/", "must begin with https"),
        ("https://user:word@hooks.example.com/", "no user"),
        ("https://hooks.example.com/#a", "no fragment"),
        ("https://hooks.example.com\\@10.2.0.1/", "no user"),
        ("https://hooks.example.com:99999/", "is not a URL"),
        ("https://hooks.example.com/ x", "without blanks"),
        ("https://bücher.example/", "of ASCII"),
        ("ftp://hooks.example.com/", "must begin with https"),
        ("https:///x", "must begin with https"),
        ("https://a..example.org:8443/", "not the name of a host"),
        (f"https://{'a' * 64}.example.org:8443/", "not the name of a host"),
        (f"https://{'a.' * 150}example.org:8443/", "not the name of a host"),
        (f"https://{'a' * 63}.example.org:8443/", ""),
        ("https://hooks.example.com/" + "x" * 1000, "at most"),
    ],
)
def test_a_url_has_a_name_that_the_operator_lists(url: str, why: str) -> None:
    said = receivers(NAMES).wrong(url)
    assert (why in said.why if said else False) if why else said is None, said


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://10.1.2.3:5000/x", ""),
        ("https://[2001:db8::1]/x", ""),
        ("http://127.0.0.1:9000/x", ""),
        ("http://127.0.0.1:5050/x", "not an allowed receiver"),
        ("https://169.254.169.254/", "not an allowed receiver"),
        ("https://10.2.0.1/", "not an allowed receiver"),
        ("https://[::ffff:192.168.0.1]/", "not an allowed receiver"),
        ("http://10.1.2.3:5000/x", "must begin with https"),
        ("http://example.com:5000/x", "must begin with https"),
    ],
)
def test_or_a_number(url: str, why: str) -> None:
    said = receivers(NUMBERS).wrong(url)
    assert (why in said.why if said else False) if why else said is None, said


def test_receiver_refusal_names_the_operator_s_list_as_remedy() -> None:
    listed, wrong = receivers(NAMES), "https://allowed@hooks.example.com/"
    other, bad = listed.wrong("https://example.com/"), listed.wrong(wrong)
    assert other is not None
    assert "--webhook-to" in other.with_remedy
    assert bad is not None
    assert "--webhook-to" not in bad.with_remedy


@pytest.mark.parametrize(
    "word", ["", "a b", "host:0", "host:70000", "host:x", "10.0.0.1/8", "https://x", "-x", "a/8"]
)
def test_a_word_that_is_no_receiver_is_refused_at_the_start(word: str) -> None:
    with pytest.raises(ValueError, match=r"neither|no port|has host bits"):
        receivers([word])


@pytest.mark.parametrize(
    ("listed", "address", "is_allowed"),
    [
        (["evil.example.com"], "93.184.216.34", True),
        (["evil.example.com"], "10.0.0.7", True),  # a name that the operator vouches for may be inside
        (["evil.example.com"], "127.0.0.1", False),
        (["evil.example.com"], "169.254.169.254", False),
        (["evil.example.com"], "::1", False),
        (["evil.example.com"], "::ffff:127.0.0.1", False),
        (["evil.example.com"], "64:ff9b::7f00:1", False),
        (["evil.example.com"], "100.100.100.200", False),
        (["evil.example.com"], "0.0.0.0", False),
        (["evil.example.com", "127.0.0.1"], "127.0.0.1", True),
        (["10.0.0.0/8"], "10.0.0.7", True),
        (["10.0.0.0/8"], "11.0.0.7", False),
    ],
)
def test_receiver_address_is_checked_when_the_name_is_resolved(
    monkeypatch: pytest.MonkeyPatch, listed: list[str], address: str, is_allowed: bool
) -> None:
    def looked_up(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    if is_allowed:
        assert receivers(listed).resolved("https://evil.example.com/").addresses == (address,)
        return
    with pytest.raises(NotAccepted, match=r"listed by its address|in no network that is allowed"):
        receivers(listed).resolved("https://evil.example.com/")


def test_a_name_that_changes_after_it_was_checked_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = socket.getaddrinfo, list[str]()

    def looked_up(host: str, *more: Any, **rest: Any) -> list[Any]:
        asked.append(host)
        return real("127.0.0.1" if asked.count("localhost") == 1 else "127.0.0.2", *more, **rest)

    with Receiver() as receiver:
        monkeypatch.setattr(socket, "getaddrinfo", looked_up)
        sender = Sender(receivers([f"127.0.0.1:{receiver.port}"]))
        assert sender.send(f"http://localhost:{receiver.port}/x", "m", b"{}", None).error == ""
    assert asked.count("localhost") == 1, "it is looked up once"
    assert receiver.taken[0].headers["host"] == f"localhost:{receiver.port}"


def test_proxies_of_the_environment_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        sender = Sender(receivers([f"127.0.0.1:{receiver.port}"]))
        assert sender.send(f"{receiver.url}/x", "m", b"{}", None).status == 204
        assert proxy.taken == []


def test_a_certificate_is_that_of_the_name_that_was_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good, other = authority.server("good"), authority.server("other", "else.example.com")
    trusting = ssl.create_default_context(cafile=str(authority.cert))
    for made, error in ((good, ""), (other, "TLS: ")):
        with Receiver(context_of(made)) as receiver:
            sender = Sender(receivers([f"127.0.0.1:{receiver.port}"]), trusting)
            came = sender.send(f"https://localhost:{receiver.port}/x", "m", b"{}", b"key")
            assert (came.error[:5], len(receiver.taken)) == (error, 0 if error else 1), came
            stranger = Sender(receivers([f"127.0.0.1:{receiver.port}"]))
            assert "TLS: " in stranger.send(f"https://localhost:{receiver.port}/x", "m", b"{}", None).error


@contextmanager
def speaking(words: bytes, every_s: float) -> Iterator[int]:
    """Somebody who takes connections and answers byte by byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                for byte in words:
                    try:
                        connection.send(bytes([byte]))
                    except OSError:
                        return
                    if ended.wait(every_s):
                        return

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        ended.set()
        thread.join()


def test_receiver_that_answers_byte_by_byte_is_left_at_the_deadline() -> None:
    with speaking(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, 0.05) as port:
        begin = time.monotonic()
        came = Sender(receivers([f"127.0.0.1:{port}"]), timeout_s=1.0).send(
            f"http://127.0.0.1:{port}/", "m", b"{}", None
        )
        assert came.error
        assert time.monotonic() - begin < 20


def test_receiver_can_be_left_during_the_tls_handshake() -> None:
    hello = b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03"  # of a record that is never whole
    answers = list[Answer]()
    with speaking(hello + bytes(12_000), 0.05) as port:
        sender = Sender(receivers([f"127.0.0.1:{port}"]), timeout_s=600.0)
        url = f"https://127.0.0.1:{port}/"
        sending = threading.Thread(target=lambda: answers.append(sender.send(url, "m", b"{}", b"key")))
        sending.start()

        def is_broken() -> bool:
            sender.interrupt()
            return not sending.is_alive()

        wait_until("it is connected", lambda: sender._live)
        wait_until("it is broken", is_broken)
    assert answers[0].error


def test_a_connection_that_is_broken_sends_nothing_in_the_clear(tmp_path: Path) -> None:
    made = Authority(tmp_path).server("good")
    ours, theirs = socket.socketpair()
    with theirs, ours:
        server = threading.Thread(target=lambda: _served(context_of(made), theirs))
        server.start()
        unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        with unchecked.wrap_socket(ours) as line:
            _break(line)
            with pytest.raises(OSError):
                line.sendall(b"secret")
            assert line.version() is not None
        server.join()


def _served(context: ssl.SSLContext, plain: socket.socket) -> None:
    with context.wrap_socket(plain, server_side=True) as line:
        assert line.recv(100) == b""


def test_receiver_that_does_not_speak_http_is_told_in_plain_words() -> None:
    with speaking(b"SSH-2.0-secret\r\n", 0.0) as port:
        came = Sender(receivers([f"127.0.0.1:{port}"])).send(f"http://127.0.0.1:{port}/", "m", b"{}", None)
    assert came.status is None
    assert "secret" not in came.error


def test_the_signature_is_that_of_standard_webhooks() -> None:
    # The example that its libraries are tested with.
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert text_of(bytes(24)) == "whsec_" + "A" * 32


class Resolver:
    """Look-ups that hang until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.asked = threading.Event(), 0
        monkeypatch.setattr(socket, "getaddrinfo", self._told)

    def _told(self, *_: Any, **__: Any) -> list[Any]:
        self.asked += 1
        assert self.free.wait(120)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", 1))]


def test_a_name_server_that_is_silent_takes_no_longer_than_the_time_out_and_of_jobs_names_no_hook_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver, url = Resolver(monkeypatch), "https://hooks.example.com:9/"
    sender = Sender(receivers(["hooks.example.com:9", "10.1.0.0/16:*"]), timeout_s=0.1)
    try:
        for _ in range(MAX_AT_ONCE + 2):
            assert sender.send(url, "m", b"{}", None) == Answer(
                "looking up the host's name took longer than 0.1 s"
            )
        assert resolver.asked == MAX_AT_ONCE, "no more threads than so many are left behind"
        assert "looking up" in sender.send(url, "m", b"{}", b"key").error
        assert resolver.asked == MAX_AT_ONCE + 1, "of a hook it is asked for"
    finally:
        resolver.free.set()
    slow = Sender(receivers(["hooks.example.com:9"]))
    wait_until(
        "there is room again", lambda: "listed by its address" in sender.send(url, "m", b"{}", None).error
    )
    assert "which must be listed by its address" in slow.send(url, "m", b"{}", None).error


def test_receiver_lookup_is_abandoned_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)
    sender, came = Sender(receivers(["hooks.example.com"]), timeout_s=100.0), list[Answer]()
    asking = threading.Thread(
        target=lambda: came.append(sender.send("https://hooks.example.com/", "m", b"{}", b"key"))
    )
    asking.start()
    try:
        wait_until("it asks", lambda: resolver.asked)
        sender.interrupt()
        asking.join(60)
        assert "looking up" in came[0].error
    finally:
        resolver.free.set()
        asking.join()
