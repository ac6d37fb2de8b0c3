"""Who is told of idle GPUs and of keeps: webhooks, and the audit log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings, OnFull
from mesos_gpu.adapters.hooks.receivers import receivers
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.scheduler.happenings.deliver import Deliveries
from tests.conftest import wait_until
from tests.contract.events.receiver import Receiver, told
from tests.contract.queues.test_keep_api import IDLE, document, idles
from tests.contract.rig import Rig
from tests.doubles.builders import gpu

KINDS = ["idle_warning", "idle_over", "kept", "keep_ended"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def rig(tmp_path: Path, receiver: Receiver) -> Iterator[Rig]:
    hooks = HookStore(tmp_path / "hooks")
    sender = Sender(receivers([f"127.0.0.1:{receiver.port}"]), timeout_s=30.0)
    trail = AuditLog(AuditSettings(tmp_path / "audit", 8 << 20, 2, OnFull.REFUSE))
    rig = Rig(hooks=hooks, sender=sender, audit=trail)
    deliveries = Deliveries(hooks, sender, rig.daemon.happened, wait_s=lambda _: 0.02)
    deliveries.start()
    rig.node(gpus=(gpu("g0"),))
    assert document(rig, IDLE).status_code == 200
    yield rig
    rig.close()
    deliveries.stop()
    hooks.close()
    trail.close()


def test_webhooks_receive_a_warning_and_keeps(rig: Rig, receiver: Receiver) -> None:
    hook = {"url": f"{receiver.url}/idle", "kinds": KINDS}
    assert rig.call("PUT", "/v1/webhooks/idle", json=hook).status_code == 201
    id = idles(rig, 120)
    assert rig.call("PUT", f"/v1/jobs/{id}/keep", json={"for_s": 600}).status_code == 200
    assert rig.call("DELETE", f"/v1/jobs/{id}/keep").status_code == 200
    wait_until("all are told", lambda: told(receiver, "/idle") == [(kind, id) for kind in KINDS])


def test_idle_keep_is_on_record_also_when_refused(rig: Rig) -> None:
    id = idles(rig, 20)
    answers = [
        rig.call("PUT", f"/v1/jobs/{id}/keep", json={"for_s": for_s}).status_code for for_s in (600, 9999)
    ]
    answers += [rig.call("DELETE", f"/v1/jobs/{id}/keep").status_code for _ in range(2)]
    assert answers == [200, 422, 200, 409]
    records = [
        (each["what"], each["on"], each["result"])
        for each in reversed(rig.call("GET", "/v1/audit").json()["records"])
        if each["what"].endswith("/keep")
    ]
    assert [(what.split()[0], on, result) for what, on, result in records] == [
        ("PUT", [f"job:{id}"], "done"), ("PUT", [f"job:{id}"], "refused"),
        ("DELETE", [f"job:{id}"], "done"), ("DELETE", [f"job:{id}"], "refused"),
    ]  # fmt: skip
