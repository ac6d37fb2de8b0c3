"""The field `check` of an app as the check that its executor makes, and its result on its way back."""

import json

import pytest

from mesos_gpu.model.apps.app import App, Check, Command, HttpScheme, PortCheck
from mesos_gpu.model.jobs.healthcheck import Checked, HealthCheck, Protocol
from mesos_gpu.policy.apps.shown_check import shown_check
from mesos_gpu.wire.hosts.checked import decode_checked, encode_checked

MADE = HealthCheck(
    grace_period_s=0, interval_s=7, timeout_s=3, delay_s=1, max_consecutive_failures=0, port_index=0
)


@pytest.mark.parametrize(
    ("check", "want"),
    [
        (Check(tcp=PortCheck()), {"protocol": Protocol.MESOS_TCP}),
        (Check(tcp=PortCheck(port_index=1)), {"protocol": Protocol.MESOS_TCP, "port_index": 1}),
        (Check(tcp=PortCheck(port=80)), {"protocol": Protocol.MESOS_TCP, "port": 80, "port_index": None}),
        (Check(http=PortCheck(path="/up")), {"protocol": Protocol.MESOS_HTTP, "path": "/up"}),
        (Check(http=PortCheck(scheme=HttpScheme.HTTPS)), {"protocol": Protocol.MESOS_HTTPS}),
        (Check(exec=Command("a b")), {"protocol": Protocol.COMMAND, "command": "a b", "port_index": None}),
        (
            Check(exec=Command(argv=("echo", "a b"))),
            {"protocol": Protocol.COMMAND, "command": "echo 'a b'", "port_index": None},
        ),
    ],
)
def test_check_of_an_app_is_one_of_its_executor(check: Check, want: dict[str, object]) -> None:
    from dataclasses import replace

    timed = replace(check, interval_s=7, timeout_s=3, delay_s=1)
    assert shown_check(App("/a", cmd="x", check=timed)) == replace(MADE, **want)  # type: ignore[arg-type]
    assert shown_check(App("/a", cmd="x")) is None


@pytest.mark.parametrize(
    "checked", [Checked(True), Checked(True, 204), Checked(False, 0), Checked(False, 503)]
)
def test_result_of_a_check_comes_back_as_it_was(checked: Checked) -> None:
    assert decode_checked(encode_checked(checked)) == checked


def test_result_of_a_check_that_is_none_is_refused() -> None:
    for data in (b"", b"{", b"[]", b'{"listening": {}}'):
        assert decode_checked(data) is None
    for wrong in (
        "x",
        {},
        {"ok": 1},
        {"ok": True, "code": -1},
        {"ok": True, "code": True},
        {"ok": True, "code": "1"},
    ):
        with pytest.raises(ValueError, match="checked"):
            decode_checked(json.dumps({"checked": wrong}).encode())
