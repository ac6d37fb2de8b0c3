"""Routes of webhooks: which URLs are sent events, and failed deliveries."""

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.adapters.hooks.send import Sender, new_secret, text_of
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.api.host_places import HostPlaces
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.requests import read_of
from mesos_gpu.api.http.rights import caller_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.spec.cluster import hooks as shapes
from mesos_gpu.api.v1.documents import expected_version
from mesos_gpu.errors import NotFound
from mesos_gpu.model.jobs.fields import NAME
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.hook import Hook, is_url
from mesos_gpu.wire.checking import Check, Problem, object_of, show
from mesos_gpu.wire.export.webhook import trial_body

_KINDS: Final = {kind.value: kind for kind in EventKind}
_KNOWN: Final = ("url", "kinds", "queues", "comment")
_MAX_QUEUES, _MAX_QUEUE = 64, 300
_COMMENT: Final = re.compile(r"[^\x00-\x1f\x7f]{0,200}")
_MAX_IDS: Final = 1000


class HookHandlers:
    """HTTP handlers of webhooks. Disk and network are used on other threads than the event loop's.

    Args:
        kept: Storage of webhooks; None if there are none.
        sender: Delivery to webhooks; None if there are none.
    """

    def __init__(self, scheduler: SchedulerApi, kept: HookStore | None, sender: Sender | None) -> None:
        self._scheduler, self._store, self._sender = scheduler, kept, sender
        self._threads = HostPlaces("trials of webhooks", most=16, of_host=4, of_caller=2)

    async def list(self, _request: Request) -> Response:
        """GET /v1/webhooks: list webhooks."""
        store = self._kept

        def asked() -> shapes.Webhooks:
            latest, counts = store.latest, store.counts()
            hooks = [_shown(hook, *counts.get(hook.name, (0, 0))) for hook in latest.hooks]
            return {"webhooks": hooks, "version": latest.version}

        body = await run_in_threadpool(asked)
        return json_answer(body, headers=_tag(body["version"]))

    async def versions(self, _request: Request) -> Response:
        """GET /v1/webhook-versions: list changes of webhooks."""
        versions = await run_in_threadpool(self._kept.versions)
        body: shapes.WebhookVersions = {
            "versions": [
                {
                    "version": version.version,
                    "at": version.at,
                    "by": version.by,
                    "what": version.what,
                    "webhooks": [hook.name for hook in version.hooks],
                }
                for version in versions
            ]
        }
        return json_answer(body)

    async def show(self, request: Request) -> Response:
        """GET /v1/webhooks/{name}: a webhook."""
        return json_answer(await run_in_threadpool(self._one, _name(request)))

    async def put(self, request: Request) -> Response:
        """PUT /v1/webhooks/{name}: create or replace a webhook."""
        store, name, value = self._kept, _name(request), await read_of(request, object_of)
        note.about("webhook", name)
        if not NAME.fullmatch(name):
            raise invalid(Problem("/name", "must be 1 to 63 of a-z, 0-9, '.' and '-'"))
        hook = self._hook_of(name, value, request)
        expected, before = _expected(request), store.latest.hook(name)
        secret = new_secret()
        version, fresh = await run_in_threadpool(store.put, hook, secret, expected)
        body: shapes.WebhookMade = {
            "webhook": await run_in_threadpool(self._one, name),
            "version": version.version,
            "secret": text_of(secret) if fresh else None,
        }
        headers = {**_tag(version.version), "Cache-Control": "no-store"}
        if before is None:
            return json_answer(body, 201, {**headers, "Location": f"/v1/webhooks/{name}"})
        return json_answer(body, 200, headers)

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/webhooks/{name}: delete a webhook."""
        name = _name(request)
        note.about("webhook", name)
        before = await run_in_threadpool(self._one, name)
        await run_in_threadpool(self._kept.remove, name, caller_of(request).name, _expected(request))
        return json_answer(before)

    async def test(self, request: Request) -> Response:
        """POST /v1/webhooks/{name}/test: send a test event now, once."""
        store, name = self._kept, _name(request)
        note.about("webhook", name)
        hook, sender = store.hook(name), self._sender
        assert sender is not None, "a store of webhooks comes with a sender"
        at = store.now()
        body, secret = trial_body(name, at), await run_in_threadpool(store.secret, name)
        id, host = f"msg_test_{int(at * 1000)}", urlsplit(hook.url).netloc
        with self._threads.place(host, key_of(request.scope)) as place:
            outcome = await place.run(lambda: sender.send(hook.url, id, body, secret))
        answer: shapes.WebhookTest = {
            "ok": not outcome.error,
            "status": outcome.status,
            "error": outcome.error or None,
            "took_s": outcome.took_s,
        }
        return json_answer(answer)

    async def dead(self, request: Request) -> Response:
        """GET /v1/webhooks/{name}/dead: list failed deliveries."""
        store, name = self._kept, _name(request)
        store.hook(name)
        letters = await run_in_threadpool(store.dead, name)
        body: shapes.DeadLetters = {
            "dead": [
                {
                    "id": letter.id,
                    "event": letter.event,
                    "kind": letter.kind,
                    "tries": letter.tries,
                    "error": letter.error,
                    "given_up_at": letter.dead_at or 0.0,
                }
                for letter in letters
            ]
        }
        return json_answer(body)

    async def retry(self, request: Request) -> Response:
        """POST /v1/webhooks/{name}/retry: repeat failed deliveries."""
        store, name, value = self._kept, _name(request), await read_of(request, object_of)
        note.about("webhook", name)
        store.hook(name)
        ids = _ids(value)
        body: shapes.Retried = {"retried": await run_in_threadpool(store.retry, name, ids)}
        return json_answer(body)

    @property
    def _kept(self) -> HookStore:
        """Return the storage of webhooks.

        Raises:
            NotFound: This scheduler has none.
        """
        if self._store is None:
            raise NotFound(
                "this scheduler has no webhooks", remedy="webhooks need a scheduler whose state is a file"
            )
        return self._store

    def _one(self, name: str) -> shapes.Webhook:
        return _shown(self._kept.hook(name), *self._kept.counts().get(name, (0, 0)))

    def _hook_of(self, name: str, value: dict[str, Any], request: Request) -> Hook:
        """Return the webhook in a request's body.

        Raises:
            Refusal: The body is not valid.
        """
        check = Check(value, _KNOWN)
        url = value.get("url")
        wrong = self._url_fault(url)
        if wrong:
            check.problem("url", wrong)
        kinds = _texts(check, value, "kinds", tuple(_KINDS), len(_KINDS))
        queues = _texts(check, value, "queues", None, _MAX_QUEUES)
        comment = check.text("comment", "", _COMMENT, "at most 200 characters on one line")
        if check.problems:
            raise invalid(*check.problems)
        return Hook(
            name,
            str(url),
            tuple(_KINDS[kind] for kind in kinds),
            tuple(queues),
            self._scheduler.happened.last,
            self._kept.now(),
            caller_of(request).name,
            comment or "",
        )

    def _url_fault(self, url: object) -> str:
        """Return why a URL cannot be a webhook's; "" if it can."""
        if not isinstance(url, str) or self._sender is None:
            return f"must be a URL, got {show(url)}"
        fault = self._sender.receivers.wrong(url)
        return fault.with_remedy if fault else ""


def wrong_receivers(
    store: HookStore | None, sender: Sender | None, receivers: Sequence[str]
) -> Sequence[Problem]:
    """Return problems of a job's receivers of events: unknown webhooks, and URLs that the operator does not allow."""
    problems = []
    for index, receiver in enumerate(receivers):
        if store is None or sender is None:
            why = "this scheduler has no webhooks"
        elif is_url(receiver):
            fault = sender.receivers.wrong(receiver)
            why = fault.with_remedy if fault else ""
        else:
            why = "" if store.latest.hook(receiver) else f"there is no webhook {receiver}"
        if why:
            problems.append(Problem(f"/notify/{index}", why))
    return problems


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _expected(request: Request) -> int | None:
    return expected_version(request, {}, "/v1/webhooks")


def _tag(version: int) -> dict[str, str]:
    return {"ETag": f'"{version}"'}


def _texts(
    check: Check, value: dict[str, Any], key: str, known: tuple[str, ...] | None, most: int
) -> list[str]:
    """Return the distinct texts of a list field, adding faults to `check`."""
    texts = value.get(key) or []
    if not isinstance(texts, list) or len(texts) > most or not all(isinstance(item, str) for item in texts):
        check.problem(key, f"must be a list of at most {most} texts, got {show(texts)}")
        return []
    for index, text in enumerate(texts):
        if known is not None and text not in known:
            check.problem(
                f"{key}/{index}", f"{show(text)} is not a kind of event; kinds are {', '.join(known)}"
            )
        elif not 0 < len(text) <= _MAX_QUEUE or not text.isprintable():
            check.problem(f"{key}/{index}", f"must be 1 to {_MAX_QUEUE} characters on one line")
    return list(dict.fromkeys(texts))


def _ids(value: dict[str, Any]) -> list[int]:
    """Return the ids of failed deliveries in a body; empty for all.

    Raises:
        Refusal: The body is not valid.
    """
    check = Check(value, ("ids",))
    ids = [] if value.get("ids") is None else value["ids"]
    good = isinstance(ids, list) and all(type(number) is int and 0 < number < 1 << 62 for number in ids)
    if not good or len(ids) > _MAX_IDS:
        check.problem(
            "ids", f"must be a list of at most {_MAX_IDS} ids of failed deliveries, got {show(ids)}"
        )
    if check.problems:
        raise invalid(*check.problems)
    return list(ids)


def _shown(hook: Hook, waiting: int, dead: int) -> shapes.Webhook:
    return {
        "name": hook.name,
        "url": shown_url(hook.url),
        "kinds": [kind.value for kind in hook.kinds],
        "queues": list(hook.queues),
        "at": hook.at,
        "by": hook.by,
        "comment": hook.comment,
        "waiting": waiting,
        "dead": dead,
    }


def shown_url(url: str) -> str:
    """Return an address without its path and query, which may contain secrets."""
    parts = urlsplit(url)
    rest = "/…" if parts.path not in ("", "/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{rest}"
