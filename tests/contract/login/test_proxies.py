"""Proxies that say whom they have let in: headers over a real server, and nginx in front of it."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path

import pytest
import requests

from mesos_gpu.adapters.proofs.local import LocalCallers
from mesos_gpu.adapters.proofs.proxies import Proxies, ProxyHeaders
from mesos_gpu.api.http.sockets import LocalSocket
from mesos_gpu.local.own_ports import free_port
from tests.conftest import wait_until
from tests.contract.login.rig import LoginRig, TokenStore, basic, said

LOCAL = Proxies([ip_network("127.0.0.0/8")])
AWAY = Proxies([ip_network("192.0.2.0/24")])
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
WORKER = "www-data" if os.geteuid() == 0 else getpass.getuser()


@pytest.fixture
def rig() -> Iterator[LoginRig]:
    prover = ProxyHeaders(LOCAL, "X-Forwarded-User", "X-Forwarded-Groups")
    rig = LoginRig([TokenStore().prover(), prover], proxies=LOCAL)
    yield rig
    rig.close()


def test_a_trusted_proxy_says_name_groups_and_address(rig: LoginRig) -> None:
    headers = {
        "X-Forwarded-User": "eve",
        "X-Forwarded-Groups": "watchers, x,",
        "X-Forwarded-For": "6.6.6.6, 9.9.9.9",
    }
    who = rig.call("GET", "/v1/whoami", headers=headers).json()
    assert (who["name"], who["proof"], who["groups"]) == ("eve", "proxy", ["watchers", "x"])
    assert who["address"] == "9.9.9.9"
    assert who["roles"] == ["viewer"]


def test_proxy_request_without_the_header_has_no_name(rig: LoginRig) -> None:
    assert rig.call("GET", "/v1/jobs").status_code == 401
    assert rig.call("GET", "/v1/jobs", headers={"X-Forwarded-User": ""}).status_code == 401


@pytest.mark.parametrize("name", ["a" * 300, "ann\tb"])
def test_proxy_header_that_is_no_name_is_refused(rig: LoginRig, name: str) -> None:
    refused = rig.call("GET", "/v1/jobs", headers={"X-Forwarded-User": name})
    assert said(refused) == (401, "X-Forwarded-User is no name")


def test_a_header_that_is_there_twice_is_refused(rig: LoginRig) -> None:
    request = (
        b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        + 2 * b"X-Forwarded-User: ann\r\n"
    )
    with socket.create_connection(("127.0.0.1", rig.server.port), timeout=60) as connection:
        connection.sendall(request + b"\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"401 Unauthorized" in answer
    assert b"several headers X-Forwarded-User" in answer


def test_groups_without_a_name_are_refused(rig: LoginRig) -> None:
    assert rig.call("GET", "/v1/jobs", headers={"X-Forwarded-Groups": "admins"}).status_code == 401


def test_proxy_that_is_not_listed_names_no_caller_also_on_loopback() -> None:
    rig = LoginRig([ProxyHeaders(AWAY)], proxies=AWAY)
    try:
        refused = rig.call("GET", "/v1/jobs", headers={"X-Forwarded-User": "root"})
        assert said(refused) == (401, "X-Forwarded-User is believed from trusted proxies only")
        who = rig.call("GET", "/v1/whoami", headers={"X-Forwarded-For": "9.9.9.9"}).json()
        assert who["address"] == "127.0.0.1"
    finally:
        rig.close()


def test_proxy_header_is_ignored_without_trusted_proxies() -> None:
    rig = LoginRig([TokenStore().prover()])
    try:
        refused = rig.call("GET", "/v1/jobs", headers={"X-Forwarded-User": "root"})
        assert "none is proved" in said(refused)[1]
    finally:
        rig.close()


# --- nginx


class _Judge(BaseHTTPRequestHandler):
    """Somebody's service that nginx asks: knows one cookie."""

    def do_GET(self) -> None:
        known = self.headers.get("Cookie") == "sso=ann"
        self.send_response(200 if known else 401)
        if known:
            self.send_header("X-Auth-User", "ann")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def nginx(directory: Path, server: str) -> Iterator[str]:
    """A real one with this server block, its address."""
    port = free_port()
    user = f"user {WORKER};" if os.geteuid() == 0 else ""
    paths = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (directory / "nginx.conf").write_text(
        f"{user} worker_processes 1; pid {directory}/pid; error_log stderr warn; events {{}}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; {server} }} }}\n"
    )
    process = subprocess.Popen(
        [str(NGINX), "-p", str(directory), "-c", "nginx.conf", "-g", "daemon off;"], stderr=subprocess.DEVNULL
    )
    try:
        wait_until("nginx listens", lambda: _listens(port), 30)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(url: str, **headers: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(
            url, headers={name.replace("_", "-"): value for name, value in headers.items()}, timeout=60
        )


@pytest.fixture
def behind(open_directory: Path) -> Iterator[tuple[LoginRig, Path]]:
    """A scheduler on a Unix socket that believes nginx' workers, and where that is."""
    path = open_directory / f"run-{os.urandom(4).hex()}" / "api.sock"
    proxies = Proxies(users=[pwd.getpwnam(WORKER).pw_uid])
    rig = LoginRig([ProxyHeaders(proxies), LocalCallers(proxies)], proxies=proxies, local=LocalSocket(path))
    yield rig, path
    rig.close()


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_nginx_asks_for_passwords_and_names_who_gave_one(
    behind: tuple[LoginRig, Path], open_directory: Path
) -> None:
    _rig, path = behind
    directory = open_directory / f"nginx-{os.urandom(4).hex()}"
    directory.mkdir()
    (directory / "users").write_text("ann:{PLAIN}secret\n")
    server = (
        f"auth_basic x; auth_basic_user_file {directory}/users; location / {{ proxy_pass http://unix:{path}:; "
        "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-User $remote_user; "
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Authorization ''; }"
    )
    with nginx(directory, server) as url:
        assert get(f"{url}/v1/whoami").status_code == 401
        who = get(f"{url}/v1/whoami", **basic("ann", "secret"), X_Forwarded_For="6.6.6.6").json()
        forged = get(f"{url}/v1/whoami", **basic("ann", "secret"), X_Forwarded_User="root").json()
    assert (who["name"], who["proof"], who["address"]) == ("ann", "proxy", "127.0.0.1")
    assert forged["name"] == "ann", "nginx sets the header, whatever came"


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_nginx_asks_a_service_of_its_own_who_it_is(
    behind: tuple[LoginRig, Path], open_directory: Path
) -> None:
    _rig, path = behind
    directory = open_directory / f"nginx-{os.urandom(4).hex()}"
    directory.mkdir()
    judge = ThreadingHTTPServer(("127.0.0.1", 0), _Judge)
    serving = threading.Thread(target=judge.serve_forever)
    serving.start()
    server = (
        f"location = /sso {{ internal; proxy_pass http://127.0.0.1:{judge.server_port}; }}"
        f"location / {{ auth_request /sso; auth_request_set $sso_user $upstream_http_x_auth_user; "
        f"proxy_pass http://unix:{path}:; proxy_set_header Host $http_host; "
        "proxy_set_header X-Forwarded-User $sso_user; proxy_set_header Cookie ''; }"
    )
    try:
        with nginx(directory, server) as url:
            assert get(f"{url}/v1/jobs").status_code == 401
            assert get(f"{url}/v1/jobs", Cookie="sso=eve").status_code == 401
            assert get(f"{url}/v1/whoami", Cookie="sso=ann").json()["name"] == "ann"
            assert get(f"{url}/v1/jobs", Cookie="sso=ann").status_code == 200
    finally:
        judge.shutdown()
        judge.server_close()
        serving.join(30)
