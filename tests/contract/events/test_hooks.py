"""Webhooks: told in order until they take it, signed, after a restart too; a job's own; what is given up."""

import base64
import fcntl
import json
import logging
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.hooks import store as hook_store
from mesos_gpu.adapters.hooks.receivers import receivers
from mesos_gpu.adapters.hooks.send import Answer, Sender
from mesos_gpu.adapters.hooks.store import MAX_WAITING, HookStore, hooks_of
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.engine import events as ev
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.tasks.event import EventKind, LogEvent
from mesos_gpu.model.tasks.hook import Hook, HookVersion
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.scheduler.happenings import deliver
from mesos_gpu.scheduler.happenings.deliver import AT_ONCE, MAX_TRIES, Deliveries
from mesos_gpu.scheduler.happenings.handing_over import ALONE, DeliveryProgress
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.wire.mesos.report import encode
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call
from tests.contract.events.kept import Kept
from tests.contract.events.receiver import Receiver, told
from tests.contract.metrics.prometheus import needs_prometheus
from tests.doubles.builders import gpu, offer

NAMES = ("waiting", "dead", "given_up_total")


class Hooked(Kept):
    """A scheduler with webhooks, which may be sent to one receiver. `by`: where the others reach it, if there are."""

    def __init__(self, directory: Path, receiver: Receiver, by: str = ALONE) -> None:
        self._by = by
        self.hooks = HookStore(directory / "state.sqlite.hooks")
        self.sender = Sender(receivers([f"127.0.0.1:{receiver.port}"]), timeout_s=30.0)
        super().__init__(directory / "state.sqlite", hooks=self.hooks, sender=self.sender)

    def start(self) -> None:
        super().start()
        over = DeliveryProgress(self.hooks, self.saved, self._by)
        self.deliveries = Deliveries(
            self.hooks, self.sender, self.daemon.happened, wait_s=self.pause_s, handed_over=over
        )
        over.begin(self.daemon.keep)
        self.deliveries.start()

    def pause_s(self, tries: int) -> float:
        """Return the seconds until the next try, by the number of tries: all of them end soon."""
        return 0.02

    def stop(self) -> None:
        super().stop()
        self.deliveries.stop()

    def hook(self, name: str, url: str, *kinds: str, **more: Any) -> bytes:
        answer = self.call("PUT", f"/v1/webhooks/{name}", json={"url": url, "kinds": list(kinds), **more})
        assert answer.status_code in (200, 201), answer.text
        secret = answer.json()["secret"]
        return base64.b64decode(secret.removeprefix("whsec_")) if secret else b""

    def node(self, *gpus: Gpu) -> None:
        self.daemon.put(ev.OffersArrived((offer("o1", "a1", gpus=len(gpus)),)))
        monitor = self.daemon.read(lambda view: view.nodes[AgentId("a1")].monitor).result(60)
        assert monitor is not None
        data = encode(Inventory(gpus, "simulated", "535", "12.2"))
        update = Status(monitor, "TASK_RUNNING", AgentId("a1"), data=data, uuid="u")
        self.daemon.put(ev.StatusArrived(update))

    def close(self) -> None:
        super().close()
        self.hooks.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def rig(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooked]:
    rig = Hooked(tmp_path / "state", receiver)
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield rig
    rig.close()


def test_webhook_gets_its_kinds_and_queues_in_order_with_a_signature(rig: Hooked, receiver: Receiver) -> None:
    before = rig.submit(name="before")
    secret = rig.hook("all", f"{receiver.url}/all?x=1", "submitted", "killed")
    rig.hook("ml", f"{receiver.url}/ml", "submitted", queues=["ml"])
    jobs = [rig.submit(name=f"n{number}", queue=("ml", "ml/vision", "ops")[number]) for number in range(3)]
    rig.call("DELETE", f"/v1/jobs/{jobs[0]}")
    expected = [*(("submitted", job) for job in jobs), ("killed", jobs[0])]
    wait_until("all are told", lambda: told(receiver, "/all?x=1") == expected)
    wait_until("those of the queue are told", lambda: len(told(receiver, "/ml")) == 2)
    assert told(receiver, "/ml") == [("submitted", jobs[0]), ("submitted", jobs[1])]
    first = receiver.of("/all?x=1")[0]
    assert first.is_signed(secret)
    assert not first.is_signed(b"another")
    assert before not in json.dumps(told(receiver, "/all?x=1"))
    body = json.loads(first.body)
    assert (body["type"], body["data"]["queue"], body["data"]["number"] > 0) == ("submitted", "ml", True)
    assert first.headers["content-type"] == "application/json"


def test_webhook_event_of_a_booking_names_the_booking(rig: Hooked, receiver: Receiver) -> None:
    rig.node(gpu("g0"), gpu("g1"))
    rig.hook("calendar", f"{receiver.url}/calendar", "booking_made", "booking_cancelled", queues=["exam"])
    body = {"name": "monday", "queue": "exam", "gpus": 2, "from": "tomorrow 9:00", "for_s": 3600}
    made = rig.call("POST", "/v1/bookings", json=body).json()
    rig.call("DELETE", f"/v1/bookings/{made['id']}")
    wait_until("both are told", lambda: len(receiver.of("/calendar")) == 2)
    bodies = [json.loads(each.body) for each in receiver.of("/calendar")]
    assert [each["type"] for each in bodies] == ["booking_made", "booking_cancelled"]
    assert {(each["data"]["booking"], each["data"]["queue"]) for each in bodies} == {(made["id"], "exam")}
    events = rig.call("GET", "/v1/events", params={"kind": "booking_made"}).json()["events"]
    assert [each["booking"] for each in events] == [made["id"]]


def test_webhook_that_fails_is_sent_again_in_order_with_the_same_id(rig: Hooked, receiver: Receiver) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted")
    receiver.status = 503
    jobs = [rig.submit(name="one"), rig.submit(name="two")]
    wait_until("it was tried twice", lambda: len(receiver.of("/h")) >= 2)
    first, again = receiver.of("/h")[:2]
    assert (first.headers["webhook-id"], first.body) == (again.headers["webhook-id"], again.body)
    assert told(receiver, "/h") == [("submitted", jobs[0])], "the next one waits"
    receiver.status = 200
    wait_until("both are taken", lambda: told(receiver, "/h") == [("submitted", job) for job in jobs])
    wait_until("nothing waits", lambda: rig.hooks.counts() == {})


def test_a_receiver_that_hangs_or_redirects_holds_up_nobody_else_and_never_the_engine(
    rig: Hooked, receiver: Receiver
) -> None:
    rig.hook("slow", f"{receiver.url}/slow", "submitted")
    receiver.held.clear()
    rig.submit(name="one")
    wait_until("it is asked", lambda: receiver.of("/slow"))
    job = rig.submit(name="two", notify=[f"{receiver.url}/mine"])
    rig.call("DELETE", f"/v1/jobs/{job}")
    assert rig.call("GET", f"/v1/jobs/{job}").json()["state"] == "killed"
    wait_until("the other one is asked meanwhile", lambda: receiver.of("/mine"))
    receiver.status, receiver.more = 302, {"Location": f"{receiver.url}/elsewhere"}
    receiver.held.set()
    wait_until("it was tried again", lambda: len(receiver.of("/slow")) > 1)
    assert receiver.of("/elsewhere") == [], "no redirect is followed"
    receiver.status, receiver.more = 200, {}


def test_webhooks_after_a_restart_are_complete(rig: Hooked, receiver: Receiver) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted", "killed")
    receiver.status = 500
    jobs = [rig.submit(name="one")]
    wait_until("it was tried", lambda: receiver.of("/h"))
    rig.deliveries.stop()
    jobs.append(rig.submit(name="two"))  # an event that nobody takes over before the end
    rig.stop()
    receiver.status = 200
    rig.start()
    wait_until("all are told", lambda: told(receiver, "/h") == [("submitted", job) for job in jobs])


def test_a_receiver_that_hangs_does_not_hold_up_the_end_and_is_asked_again_after_it(
    rig: Hooked, receiver: Receiver
) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted")
    receiver.held.clear()
    job = rig.submit(name="one")
    wait_until("it is asked", lambda: receiver.of("/h"))
    begin = time.monotonic()
    rig.stop()
    assert time.monotonic() - begin < 25, "less than a request may take"
    receiver.held.set()
    rig.start()
    wait_until("it is asked again", lambda: len(receiver.of("/h")) > 1)
    wait_until("and takes it", lambda: rig.hooks.counts() == {})
    assert told(receiver, "/h") == [("submitted", job)]


def test_webhook_that_cannot_be_sent_is_a_dead_letter_to_retry(rig: Hooked, receiver: Receiver) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted")
    receiver.status = 410
    job = rig.submit(name="one")
    wait_until("it is given up", lambda: rig.hooks.dead("h"))
    assert len(receiver.of("/h")) == MAX_TRIES
    (letter,) = rig.call("GET", "/v1/webhooks/h/dead").json()["dead"]
    assert (letter["kind"], letter["tries"], letter["error"]) == ("submitted", 12, "the answer was 410")
    assert "410" in call("webhook", "dead", "h").stdout
    assert rig.call("GET", "/v1/webhooks/h").json()["dead"] == 1
    nothing: list[object] = [{}, "", 0, False]
    for ids in nothing:
        refused = rig.call("POST", "/v1/webhooks/h/retry", json={"ids": ids})
        assert (refused.status_code, "/ids" in refused.text) == (422, True), ids
    receiver.status, receiver.taken = 200, []
    assert call("webhook", "retry", "h", str(letter["id"])).stdout == "events sent again: 1\n"
    wait_until("it is told at last", lambda: told(receiver, "/h") == [("submitted", job)])
    wait_until("it is none any more", lambda: rig.hooks.dead() == [])


def test_webhook_backlog_and_dead_letters_are_metrics(rig: Hooked, receiver: Receiver) -> None:
    def page() -> dict[str, list[float]]:
        text = rig.call("GET", "/metrics/prometheus").text
        samples = re.findall(r'^mesos_gpu_webhook_(\w+)\{webhook="(.*)"\} (\S+)$', text, re.MULTILINE)
        return {
            hook: [
                float(number) for name in NAMES for key, of, number in samples if (key, of) == (name, hook)
            ]
            for hook in sorted({of for _, of, _ in samples})
        }

    rig.hook("h", f"{receiver.url}/h", "submitted")
    rig.hook("quiet", f"{receiver.url}/quiet", "gpu")
    assert page() == {"*": [0, 0, 0], "h": [0, 0, 0], "quiet": [0, 0, 0]}
    receiver.status = 410
    rig.submit(name="one")
    wait_until("it is given up", lambda: page()["h"] == [0, 1, 1])
    job = rig.submit(name="two", notify=[f"{receiver.url}/{number}" for number in range(3)])
    rig.call("DELETE", f"/v1/jobs/{job}")
    expected = {"*": [0, 0, 3], "h": [0, 2, 2], "quiet": [0, 0, 0]}
    wait_until("those of URLs are counted together", lambda: page() == expected)
    receiver.held.clear()
    assert rig.hooks.retry("h") == 2
    assert page()["h"] == [2, 0, 2], "what was given up once stays counted"
    rig.call("DELETE", "/v1/webhooks/h")
    assert page() == {"*": [0, 0, 3], "quiet": [0, 0, 0]}
    receiver.held.set()


@needs_prometheus
def test_promtool_takes_the_metrics_of_webhooks(rig: Hooked, receiver: Receiver) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted")
    page = rig.call("GET", "/metrics/prometheus").text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page, text=True, capture_output=True, timeout=60
    )
    assert 'mesos_gpu_webhook_given_up_total{webhook="h"} 0.0' in page
    assert "webhook" not in done.stderr


def test_a_backup_has_webhooks_their_secrets_and_what_waits(
    rig: Hooked, receiver: Receiver, tmp_path: Path
) -> None:
    secret = rig.hook("h", f"{receiver.url}/h", "submitted")
    receiver.status = 503
    jobs = [rig.submit(name="one"), rig.submit(name="two")]
    wait_until("both wait", lambda: rig.hooks.counts() == {"h": (2, 0)})
    wait_until("it was tried", lambda: receiver.of("/h"))
    copy = tmp_path / "other" / "state.sqlite"
    copy.parent.mkdir()
    assert backup(tmp_path / "state" / "state.sqlite", copy) == [copy, hooks_of(copy)]
    assert {path.stat().st_mode & 0o777 for path in copy.parent.iterdir()} == {0o600}
    rig.call("DELETE", "/v1/webhooks/h")
    rig.stop()
    sent, receiver.status = len(receiver.taken), 200
    again = Hooked(copy.parent, receiver)
    try:
        wait_until("all are told", lambda: again.hooks.counts() == {})
        told_now = receiver.taken[sent:]
        assert [json.loads(each.body)["data"]["job_id"] for each in told_now] == jobs
        assert all(each.is_signed(secret) for each in told_now)
        assert told_now[0].headers["webhook-id"] == receiver.taken[0].headers["webhook-id"]
        assert [hook["name"] for hook in again.call("GET", "/v1/webhooks").json()["webhooks"]] == ["h"]
    finally:
        again.close()
        rig.start()


def test_an_event_that_nobody_took_over_before_the_backup_is_told_after_it(
    rig: Hooked, receiver: Receiver, tmp_path: Path
) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted")
    rig.deliveries.stop()
    job = rig.submit(name="one")
    assert rig.hooks.counts() == {}
    copy = tmp_path / "other" / "state.sqlite"
    copy.parent.mkdir()
    backup(tmp_path / "state" / "state.sqlite", copy)
    again = Hooked(copy.parent, receiver)
    try:
        wait_until("it is told", lambda: told(receiver, "/h") == [("submitted", job)])
    finally:
        again.close()


def test_a_job_tells_whom_it_names_how_it_ends(rig: Hooked, receiver: Receiver) -> None:
    secret = rig.hook("mine", f"{receiver.url}/mine")
    rig.submit(name="other")
    done = call("run", "--detach", "--notify", "mine", "--notify", f"{receiver.url}/url", "--", "true")
    assert done.exit_code == 0, done.output
    job = done.stdout.split()[0]
    shown = rig.call("GET", f"/v1/jobs/{job}").json()
    assert shown["notify"] == ["mine", f"{receiver.url}/url"]
    rig.call("DELETE", f"/v1/jobs/{shown['id']}")
    for path in ("/mine", "/url"):
        wait_until("it is told", lambda: told(receiver, path) == [("killed", shown["id"])])  # noqa: B023
    assert receiver.of("/mine")[0].is_signed(secret)
    assert "webhook-signature" not in receiver.of("/url")[0].headers, "who named it has no secret of it"
    texts = ["message" in json.loads(receiver.of(path)[0].body)["data"] for path in ("/mine", "/url")]
    assert texts == [True, False], "what is said may name jobs of others"


def test_webhook_named_by_a_job_must_exist_and_be_allowed(rig: Hooked, receiver: Receiver) -> None:
    wrong = ["none", "https://example.com/x", "http://127.0.0.1:1/x", "ftp://x", "https://u:p@127.0.0.1/"]
    answer = rig.call("POST", "/v1/jobs", json={"command": "true", "notify": wrong})
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["error"]["problems"]] == ["/notify/3"]
    answer = rig.call(
        "POST", "/v1/jobs", json={"command": "true", "notify": [wrong[0], *wrong[1:3], wrong[4]]}
    )
    problems = answer.json()["error"]["problems"]
    assert [each["path"] for each in problems] == [f"/notify/{index}" for index in range(4)]
    assert "--webhook-to" in problems[1]["reason"]


def test_a_hook_is_made_shown_changed_tried_and_removed_and_its_secret_is_told_once(
    rig: Hooked, receiver: Receiver
) -> None:
    made = call("webhook", "add", "ops", f"{receiver.url}/secret-path", "--event", "gpu", "--comment", "x")
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert secret.startswith("whsec_")
    for words in (("show", "ops"), ("list",), ("show", "ops", "--json"), ("list", "--json"), ("versions",)):
        said = call("webhook", *words)
        assert said.exit_code == 0, said.output
        assert secret not in said.output
        assert "secret-path" not in said.output, "the address may be a secret, too"
    assert call("webhook", "test", "ops").exit_code == 0
    assert json.loads(receiver.taken[-1].body)["type"] == "test"
    receiver.status = 500
    failed = call("webhook", "test", "ops")
    assert (failed.exit_code, "the answer was 500" in failed.output) == (1, True)
    same = call("webhook", "add", "ops", "-", "--event", "node", stdin=f"{receiver.url}/secret-path\n")
    assert (same.stdout, "keeps its secret" in same.stderr) == ("", True)
    other = call("webhook", "add", "ops", f"{receiver.url}/elsewhere", "--event", "node")
    assert other.stdout.strip() not in ("", secret), "who gets it now must not know what the other one knew"
    versions = rig.call("GET", "/v1/webhook-versions").json()["versions"]
    assert [(each["version"], each["what"]) for each in versions] == [
        (3, "ops changed"),
        (2, "ops changed"),
        (1, "ops made"),
    ]
    stale = rig.call("PUT", "/v1/webhooks/ops", json={"url": receiver.url}, headers={"If-Match": '"2"'})
    assert stale.status_code == 409
    assert call("webhook", "remove", "ops").exit_code == 0
    assert call("webhook", "show", "ops").exit_code == 66
    assert rig.hooks.secret("ops") is None


def test_webhook_refusal_lists_all_problems(rig: Hooked) -> None:
    body = {"url": "http://example.com/", "kinds": ["x"], "queues": [""], "comment": "a\nb", "more": 1}
    answer = rig.call("PUT", "/v1/webhooks/h", json=body)
    assert answer.status_code == 422
    paths = {each["path"] for each in answer.json()["error"]["problems"]}
    assert paths == {"/more", "/url", "/kinds/0", "/queues/0", "/comment"}
    assert rig.call("PUT", "/v1/webhooks/Not_one", json={"url": "https://example.com"}).status_code == 422


def test_a_request_that_breaks_down_is_a_try_that_failed_and_holds_up_nobody_else(
    rig: Hooked, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = rig.sender.send

    def breaks(url: str, *rest: Any) -> Answer:
        if url.endswith("/bad"):
            raise UnicodeError(f"what is wrong with {url}")
        return send(url, *rest)

    caplog.set_level(logging.WARNING, "mesos_gpu.audit")  # requests are on record by their paths
    monkeypatch.setattr(rig.sender, "send", breaks)
    rig.hook("bad", f"{receiver.url}/bad", "submitted")
    rig.hook("good", f"{receiver.url}/good", "submitted")
    job = rig.submit(name="one")
    wait_until("it is given up", lambda: rig.hooks.dead("bad"))
    wait_until("the other is told", lambda: told(receiver, "/good") == [("submitted", job)])
    (letter,) = rig.hooks.dead("bad")
    assert (letter.tries, letter.error) == (MAX_TRIES, "internal error: UnicodeError")
    assert "UnicodeError" in caplog.text
    assert "/bad" not in caplog.text, "an address may be a secret"


def test_jobs_whose_receivers_hang_hold_up_no_hook(rig: Hooked, receiver: Receiver) -> None:
    rig.hook("h", f"{receiver.url}/h", "killed")
    with Receiver() as slow:
        slow.held.clear()
        rig.sender.receivers = receivers([f"127.0.0.1:{port}" for port in (receiver.port, slow.port)])
        urls = [f"{slow.url}/{n}" for n in range(AT_ONCE)]
        first = rig.submit(name="one", notify=urls)
        rig.call("DELETE", f"/v1/jobs/{first}")
        wait_until("all threads of jobs' receivers wait", lambda: len(slow.taken) == AT_ONCE)
        begin = time.monotonic()
        second = rig.submit(name="two")
        rig.call("DELETE", f"/v1/jobs/{second}")
        both = [("killed", first), ("killed", second)]
        wait_until("the hook is told meanwhile", lambda: told(receiver, "/h") == both)
        assert time.monotonic() - begin < 25, "less than a request may take"


def test_webhook_urls_of_jobs_keep_no_dead_letters(tmp_path: Path) -> None:
    store = HookStore(tmp_path / "hooks")
    url = "https://hooks.example.com/1"
    store.take([(target, 1, "failed", b"{}") for target in (url, "h")], 1)
    for each in store.due(0.0):
        store.failed(each, "the answer was 410", None)
    store.take([(url, number, "failed", b"{}") for number in range(MAX_WAITING + 5)], MAX_WAITING + 5)
    assert store.counts() == {"h": (0, 1), url: (MAX_WAITING, 0)}
    store.close()


def test_webhook_events_before_the_first_delivery_survive_a_kill(tmp_path: Path, receiver: Receiver) -> None:
    store = HookStore(tmp_path / "hooks")
    sender = Sender(receivers([f"127.0.0.1:{receiver.port}"]))
    Deliveries(
        store, sender, EventLog()
    ).stop()  # a new cluster: nothing has happened, and nothing does before its end
    store.put(Hook("h", f"{receiver.url}/h", (EventKind.NODE,)), b"key")
    log = EventLog([LogEvent(7, 1.0, EventKind.NODE, node="a1", state="lost")])
    deliveries = Deliveries(store, sender, log)
    deliveries.start()
    wait_until("it is told", lambda: told(receiver, "/h") == [("node", "")])
    deliveries.stop()
    store.close()


def test_webhook_changes_at_once_leave_the_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = HookStore(tmp_path / "hooks")
    later = threading.Thread(target=store.put, args=(Hook("later", "https://hooks.example.com/"), b"key"))
    versions = store.versions

    def meanwhile() -> list[HookVersion]:
        seen = versions()
        if later.ident is None:
            later.start()
            later.join(0.5)  # while this one is between its end on disk and its end here, it must wait
        return seen

    monkeypatch.setattr(store, "versions", meanwhile)
    store.put(Hook("first", "https://hooks.example.com/"), b"key")
    later.join()
    assert store.latest.version == 2
    assert [hook.name for hook in store.latest.hooks] == ["first", "later"]
    store.close()


def test_webhook_backlog_above_its_limit_loses_the_oldest(tmp_path: Path) -> None:
    store = HookStore(tmp_path / "hooks")
    store.take([("h", number, "failed", b"{}") for number in range(MAX_WAITING + 5)], MAX_WAITING + 5)
    assert store.counts() == {"h": (MAX_WAITING, 5)}
    assert [each.event for each in store.dead("h")] == [0, 1, 2, 3, 4]
    assert [each.event for each in store.due(0.0)] == [5]
    store.close()


def test_webhook_secrets_are_closed_to_others_at_the_start(tmp_path: Path) -> None:
    first = HookStore(tmp_path / "hooks")
    first.put(Hook("h", "https://hooks.example.com/"), b"secret")
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    second = HookStore(tmp_path / "hooks")  # as after a kill: what SQLite keeps beside it is there still
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["hooks", "hooks-wal", "hooks-shm"], 0o600)
    second.close()
    first.close()


def test_webhook_backlog_of_urls_of_jobs_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_store, "MAX_OF_JOBS", 3)
    store = HookStore(tmp_path / "hooks")
    store.take([("h", 1, "failed", b"{}")], 1)
    for number in range(5):
        store.take([(f"https://hooks.example.com/{number}", number, "failed", b"{}")], number)
    left = {"h", *(f"https://hooks.example.com/{number}" for number in (2, 3, 4))}
    assert set(store.counts()) == left
    assert store.given_up() == {"": 2}
    store.close()


def test_a_file_that_cannot_be_read_costs_the_page_of_metrics_its_own_lines_alone(
    rig: Hooked, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig.hook("h", f"{receiver.url}/h", "submitted")
    assert "mesos_gpu_webhooks_readable 1.0" in rig.call("GET", "/metrics/prometheus").text
    with closing(sqlite3.connect(tmp_path / "state" / "state.sqlite.hooks", timeout=60)) as other:
        other.execute("DROP TABLE deliveries")
        other.commit()
    for _ in range(2):
        page = rig.call("GET", "/metrics/prometheus")
        assert page.status_code == 200
        assert "mesos_gpu_webhooks_readable 0.0" in page.text
        assert "mesos_gpu_webhook_waiting" not in page.text
        assert "mesos_gpu_nodes{" in page.text
    said = [each for each in caplog.records if each.name == "mesos_gpu.api" and "webhooks" in each.message]
    assert len(said) == 1
    answer = rig.call("GET", "/v1/webhooks")
    assert "cannot be read" in answer.json()["error"]["message"]


def test_webhook_position_in_the_events_is_kept_without_interested_hooks(
    rig: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_NOTE_S", 0.0)
    rig.submit(name="one")
    wait_until("a kill would lose nothing", lambda: rig.hooks.seen() == rig.daemon.happened.last)


def test_webhook_store_backup_waits_for_one_under_way_and_not_for_a_killed_one(
    rig: Hooked, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite"
    part = tmp_path / ".copy.sqlite.part"
    part.write_bytes(b"half")
    with part.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="part exists"):
            backup(tmp_path / "state" / "state.sqlite", copy)
    assert part.read_bytes() == b"half", "the other one goes on"
    assert not hooks_of(copy).exists()
    backup(tmp_path / "state" / "state.sqlite", copy)
    assert {each.name for each in tmp_path.iterdir()} >= {copy.name, hooks_of(copy).name}
    assert not part.exists()
    link = tmp_path / ".two.sqlite.part"
    link.symlink_to(copy)
    with pytest.raises(Conflict, match="part exists"):
        backup(tmp_path / "state" / "state.sqlite", tmp_path / "two.sqlite")
    assert link.is_symlink()
