"""The dashboard in a real browser, where it is asked who looks."""

import shutil
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from mesos_gpu.adapters.proofs.proxies import Proxies, ProxyHeaders
from tests.contract.login.rig import LoginRig, TokenStore
from tests.web.test_dashboard import QUIET, dom

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="no chromium: apt-get install chromium"
)


@pytest.fixture
def rig() -> Iterator[LoginRig]:
    proxies = Proxies([ip_network("127.0.0.0/8")])
    rig = LoginRig([TokenStore().prover(), ProxyHeaders(proxies, "Accept-Language")], proxies=proxies)
    yield rig
    rig.close()


def test_who_is_not_known_is_led_to_the_page_to_log_in(tmp_path: Path) -> None:
    rig = LoginRig([TokenStore().prover()])
    try:
        page = dom(rig.url, tmp_path)
    finally:
        rig.close()
    assert "Log in with it" in page
    assert 'name="password"' not in page, "no passwords are taken"


def test_buttons_that_are_of_no_use_to_who_looks_are_not_there(rig: LoginRig, tmp_path: Path) -> None:
    headers = {"Accept-Language": "ann"}
    job = {"name": "anns", "command": "true"}
    assert rig.call("POST", "/v1/jobs", json=job, headers=headers).status_code == 201
    assert "kill</button>" in dom(rig.url, tmp_path / "ann", *QUIET, "--accept-lang=ann")
    seen = dom(rig.url, tmp_path / "vic", *QUIET, "--accept-lang=vic")
    assert "anns" in seen
    assert "kill</button>" not in seen
    assert "logs</button>" not in seen


def test_who_has_no_rights_is_told_so(rig: LoginRig, tmp_path: Path) -> None:
    page = dom(rig.url, tmp_path, *QUIET, "--accept-lang=nell")
    assert "nell lacks the right cluster:see; ask root to bind a role that gives it" in page
    assert "does not answer" not in page


def test_who_is_known_is_named(rig: LoginRig, tmp_path: Path) -> None:
    """A proxy would say so; here the browser's own header does, as its switch has it."""
    page = dom(rig.url, tmp_path, *QUIET, "--accept-lang=root")
    assert "<span>root</span>" in page
    assert "roles: admin" in page
