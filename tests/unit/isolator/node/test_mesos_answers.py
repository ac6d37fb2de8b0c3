"""Findings from a master's and an agent's answers: by status, by flags, and by the number of agents that answer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from isolator.node import mesos_access
from isolator.node.findings import Finding, Host, Level
from isolator.node.mesos_access import AGENT, MASTER, Daemon, looked_at, of_master, secret_files
from mesos_gpu.errors import Unavailable

MASTERS_FLAGS = {
    "ip": "10.0.0.1",
    "authenticate_frameworks": "true",
    "authenticate_http_frameworks": "true",
    "authenticate_agents": "true",
    "acls": '{"permissive": false}',
}
AGENTS_FLAGS = {"ip": "10.0.0.1", "authenticate_http_executors": "true", "acls": "permissive : false"}


class Cluster:
    """Statuses and bodies by endpoint and path; an exception is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.flags: Mapping[str, str] | Exception = MASTERS_FLAGS
        self.asked: list[tuple[str, str, str, bytes, Mapping[str, str]]] = []
        cluster = self

        def ask(
            self: Daemon, method: str, path: str, body: bytes, header: Mapping[str, str]
        ) -> tuple[int, bytes]:
            cluster.asked.append((self.endpoint, method, path, body, header))
            answer = cluster.answers.get((self.endpoint, path), 401)
            if isinstance(answer, Exception):
                raise answer
            return (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())

        def flags_of(_endpoint: str, **_: object) -> Mapping[str, str]:
            if isinstance(self.flags, Exception):
                raise self.flags
            return self.flags

        monkeypatch.setattr(Daemon, "ask", ask)
        monkeypatch.setattr(mesos_access, "flags_of", flags_of)

    def agents(self, answering: int, silent: int = 0, asking: int = 0) -> None:
        names = ["open"] * answering + ["silent"] * silent + ["asking"] * asking
        endpoints = [f"{name}{number}:5051" for number, name in enumerate(names)]
        for endpoint, name in zip(endpoints, names, strict=True):
            for path in "/state", "/api/v1":
                self.answers[endpoint, path] = {
                    "open": 200, "silent": ConnectionRefusedError("no"), "asking": 403,
                }[name]  # fmt: skip
        self.answers["m:5050", "/slaves"] = {"slaves": [{"pid": f"slave(1)@{each}"} for each in endpoints]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(monkeypatch)
    cluster.agents(0)
    return cluster


def said(findings: Any) -> list[str]:
    return [f"{each.level.value} {each.check}: {each.text}" for each in findings]


MASTER_WELL = (
    "OK master: m:5050 asks for credentials, and its access control lists refuse what they do not list"
)


@pytest.mark.parametrize(
    ("state", "call", "paths"),
    [
        (401, 403, ""),
        (403, 401, ""),
        (200, 401, "/state"),
        (401, 200, "/api/v1"),
        (200, 200, "/state, /api/v1"),
        (404, 500, "/state, /api/v1"),
        (400, 402, "/state, /api/v1"),
    ],
)
def test_master_that_refuses_who_shows_no_name_is_closed(
    cluster: Cluster, state: int, call: int, paths: str
) -> None:
    cluster.answers |= {("m:5050", "/state"): state, ("m:5050", "/api/v1"): call}
    texts = said(looked_at(Daemon(MASTER, "m:5050", None, {"Authorization": "x"}), MASTERS_FLAGS))
    text = f"WARN master: m:5050 answers {paths} to anyone who reaches it, without credentials"
    assert texts == ([text] if paths else [MASTER_WELL])
    assert [(method, path, body, header) for _, method, path, body, header in cluster.asked] == [
        ("GET", "/state", b"", {}),
        ("POST", "/api/v1", b'{"type": "GET_FLAGS"}', {}),
    ]


@pytest.mark.parametrize(
    ("kind", "which"), [(MASTER, "--credentials=FILE"), (AGENT, "--http_credentials=FILE")]
)
@pytest.mark.parametrize("ip", ["", "0.0.0.0", "::", "10.0.0.1"])
def test_mesos_that_is_open_says_where_and_how_to_close_it(
    cluster: Cluster, kind: str, which: str, ip: str
) -> None:
    cluster.answers["d:1", "/state"] = 200
    flags = (MASTERS_FLAGS if kind == MASTER else AGENTS_FLAGS) | {"ip": ip}
    (finding,) = looked_at(Daemon(kind, "d:1"), flags)
    where = "" if ip == "10.0.0.1" else " on every address of its host"
    assert finding.text == f"d:1 answers /state to anyone who reaches it{where}, without credentials"
    assert f" {which};" in finding.remedy


@pytest.mark.parametrize("value", ["false", "", None])
@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        (MASTER, "authenticate_frameworks"),
        (MASTER, "authenticate_http_frameworks"),
        (MASTER, "authenticate_agents"),
        (AGENT, "authenticate_http_executors"),
    ],
)
def test_mesos_that_asks_no_names_of_some_is_a_warning(
    cluster: Cluster, kind: str, flag: str, value: str | None
) -> None:
    flags = dict(MASTERS_FLAGS if kind == MASTER else AGENTS_FLAGS)
    del flags[flag]
    if value is not None:
        flags[flag] = value
    (finding,) = looked_at(Daemon(kind, "d:1"), flags)
    assert finding.text.startswith("d:1: anyone who reaches it may ")
    assert finding.remedy.startswith(f"--{flag} ")


@pytest.mark.parametrize(
    ("acls", "how"),
    [
        ("", "are not set"),
        ('{"permissive": true}', "allow what they do not list"),
        ("{}", "allow what they do not list"),
        ('{"permissive": false}', None),
        ("permissive:false", None),
    ],
)
def test_mesos_lists_refuse_what_they_do_not_name(cluster: Cluster, acls: str, how: str | None) -> None:
    texts = said(looked_at(Daemon(MASTER, "m:5050"), MASTERS_FLAGS | {"acls": acls}))
    text = f"WARN master: m:5050: its access control lists {how}: every principal may do everything"
    assert texts == ([text] if how else [MASTER_WELL])


@pytest.mark.parametrize(
    ("answering", "silent", "asking", "text"),
    [
        (0, 0, 0, "OK agents: 0 of 0 answer from here, and ask for credentials"),
        (0, 2, 3, "OK agents: 3 of 5 answer from here, and ask for credentials"),
        (1, 1, 1, "WARN agents: open0:5051: anyone who reaches them can run commands as root"),
        (5, 0, 0, f"WARN agents: {', '.join(f'open{n}:5051' for n in range(5))}: anyone who reaches them can "
                  "run commands as root"),
        (7, 0, 0, f"WARN agents: {', '.join(f'open{n}:5051' for n in range(5))} and 2 more: anyone who "
                  "reaches them can run commands as root"),
    ],
)  # fmt: skip
def test_master_tells_its_agents_which_are_asked(
    cluster: Cluster, answering: int, silent: int, asking: int, text: str
) -> None:
    cluster.agents(answering, silent, asking)
    assert said(of_master("m:5050", {"Authorization": "x"})) == [MASTER_WELL, text]
    headers = [header for endpoint, _, path, _, header in cluster.asked if path == "/slaves"]
    assert headers == [{"Authorization": "x"}]


def test_master_is_looked_at_further_where_its_flags_are_known(cluster: Cluster) -> None:
    cluster.answers["m:5050", "/slaves"] = 403
    more = Finding("more", Level.OK, "seen")
    texts = list(of_master("m:5050", {}, None, lambda daemon, flags: iter([more] if flags else [])))
    assert said(texts) == [
        MASTER_WELL,
        "WARN agents: m:5050 does not list its agents: status 403",
        "OK more: seen",
    ]


@pytest.mark.parametrize("status", [199, 201, 204])
def test_master_whose_agents_come_with_another_status_does_not_tell(cluster: Cluster, status: int) -> None:
    cluster.answers["m:5050", "/slaves"] = status
    assert said(of_master("m:5050", {}))[1:] == [
        f"WARN agents: m:5050 does not list its agents: status {status}"
    ]


def test_master_that_fails_is_named_with_the_cause(cluster: Cluster) -> None:
    silent = Unavailable("the agent m:5050 does not answer", remedy="x")
    silent.__cause__ = ConnectionRefusedError()
    for error, remedy in (
        (silent, "check that it runs, and that --master names its HOST:PORT"),
        (
            Unavailable("the agent m:5050 does not tell", remedy="x"),
            "give --mesos-credentials=FILE of a principal that may view flags by its access control lists",
        ),
    ):
        cluster.flags = error
        (finding,) = of_master("m:5050", {})
        assert finding.text == error.what.replace("the agent", "the master")
        assert finding.remedy == remedy
    cluster.flags = MASTERS_FLAGS
    cluster.answers["m:5050", "/slaves"] = {"no": "slaves"}
    assert said(of_master("m:5050", {}))[1:] == ["FAIL master: m:5050: 'slaves'"]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o610, 0o604, 0o602, 0o601, 0o620])
def test_files_of_secrets_are_their_owners_alone(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "etc" / "secret"
    path.parent.mkdir()
    path.touch()
    path.chmod(mode)
    host = Host(tmp_path, None, {}, tmp_path)
    flags = {
        "credential": "relative",
        "credentials": "/missing",
        "http_credentials": "file:///etc/secret",
        "jwt_secret_key": "/etc/secret",
        "other": "/etc/secret",
    }
    named = [f"FAIL names: /etc/secret (--{flag}) has mode {mode:04o}: others may have read its secrets"
             for flag in ("http_credentials", "jwt_secret_key")]  # fmt: skip
    assert said(secret_files(host, flags)) == (named if mode & 0o077 else [])
    assert said(secret_files(host, {})) == []


def test_connection_to_mesos_is_closed_whatever_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Connection:
        def __init__(self, *_: object) -> None:
            pass

        def request(self, *_: object) -> Any:
            raise ConnectionResetError

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(mesos_access, "HttpConnection", Connection)
    with pytest.raises(ConnectionResetError):
        Daemon(AGENT, "a:1").ask("GET", "/state", b"", {})
    assert closed == [True]
