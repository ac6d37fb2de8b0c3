"""/v1/webhooks: who is told what happens, and what could not be told."""

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
    """The routes' functions. What touches the disk or the network is done beside the loop."""

    def __init__(self, scheduler: SchedulerApi, kept: HookStore | None, sender: Sender | None) -> None:
        """Serve webhooks; None: there are none here."""
        self._scheduler, self._store, self._sender = scheduler, kept, sender
        self._threads = HostPlaces("trials of webhooks", most=16, of_host=4, of_caller=2)

    async def list(self, _request: Request) -> Response:
        """GET /v1/webhooks."""
        store = self._kept

        def asked() -> shapes.Webhooks:
            latest, counts = store.latest, store.counts()
            hooks = [_shown(hook, *counts.get(hook.name, (0, 0))) for hook in latest.hooks]
            return {"webhooks": hooks, "version": latest.version}

        body = await run_in_threadpool(asked)
        return json_answer(body, headers=_tag(body["version"]))

    async def versions(self, _request: Request) -> Response:
        """GET /v1/webhook-versions."""
        kept = await run_in_threadpool(self._kept.versions)
        body: shapes.WebhookVersions = {
            "versions": [
                {
                    "version": each.version,
                    "at": each.at,
                    "by": each.by,
                    "what": each.what,
                    "webhooks": [hook.name for hook in each.hooks],
                }
                for each in kept
            ]
        }
        return json_answer(body)

    async def show(self, request: Request) -> Response:
        """GET /v1/webhooks/{name}."""
        return json_answer(await run_in_threadpool(self._one, _name(request)))

    async def put(self, request: Request) -> Response:
        """PUT /v1/webhooks/{name}."""
        store, name, value = self._kept, _name(request), await read_of(request, object_of)
        note.about("webhook", name)
        if not NAME.fullmatch(name):
            raise invalid(Problem("/name", "must be 1 to 63 of a-z, 0-9, '.' and '-'"))
        hook = self._asked(name, value, request)
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
        """DELETE /v1/webhooks/{name}."""
        name = _name(request)
        note.about("webhook", name)
        before = await run_in_threadpool(self._one, name)
        await run_in_threadpool(self._kept.remove, name, caller_of(request).name, _expected(request))
        return json_answer(before)

    async def test(self, request: Request) -> Response:
        """POST /v1/webhooks/{name}/test: send something now, once."""
        store, name = self._kept, _name(request)
        note.about("webhook", name)
        hook, sender = store.hook(name), self._sender
        assert sender is not None, "with hooks there is what sends to them"
        at = store.now()
        body, secret = trial_body(name, at), await run_in_threadpool(store.secret, name)
        id, host = f"msg_test_{int(at * 1000)}", urlsplit(hook.url).netloc
        with self._threads.place(host, key_of(request.scope)) as place:
            came = await place.run(lambda: sender.send(hook.url, id, body, secret))
        answer: shapes.WebhookTest = {
            "ok": not came.error,
            "status": came.status,
            "error": came.error or None,
            "took_s": came.took_s,
        }
        return json_answer(answer)

    async def dead(self, request: Request) -> Response:
        """GET /v1/webhooks/{name}/dead."""
        store, name = self._kept, _name(request)
        store.hook(name)
        kept = await run_in_threadpool(store.dead, name)
        body: shapes.DeadLetters = {
            "dead": [
                {
                    "id": each.id,
                    "event": each.event,
                    "kind": each.kind,
                    "tries": each.tries,
                    "error": each.error,
                    "given_up_at": each.dead_at or 0.0,
                }
                for each in kept
            ]
        }
        return json_answer(body)

    async def retry(self, request: Request) -> Response:
        """POST /v1/webhooks/{name}/retry."""
        store, name, value = self._kept, _name(request), await read_of(request, object_of)
        note.about("webhook", name)
        store.hook(name)
        ids = _ids(value)
        body: shapes.Retried = {"retried": await run_in_threadpool(store.retry, name, ids)}
        return json_answer(body)

    @property
    def _kept(self) -> HookStore:
        if self._store is None:
            raise NotFound("there are no webhooks here", remedy="the scheduler's state must be a file")
        return self._store

    def _one(self, name: str) -> shapes.Webhook:
        return _shown(self._kept.hook(name), *self._kept.counts().get(name, (0, 0)))

    def _asked(self, name: str, value: dict[str, Any], request: Request) -> Hook:
        check = Check(value, _KNOWN)
        url = value.get("url")
        wrong = self._wrong(url)
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

    def _wrong(self, url: object) -> str:
        if not isinstance(url, str) or self._sender is None:
            return f"must be a URL, got {show(url)}"
        fault = self._sender.receivers.wrong(url)
        return fault.with_remedy if fault else ""


def wrong_receivers(
    store: HookStore | None, sender: Sender | None, receivers: Sequence[str]
) -> Sequence[Problem]:
    """What is wrong with whom a job wants told: there is no such webhook, or the operator does not allow the URL."""
    problems = []
    for index, receiver in enumerate(receivers):
        if store is None or sender is None:
            why = "there are no webhooks here"
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
    """A list of texts, each once."""
    given = value.get(key) or []
    if not isinstance(given, list) or len(given) > most or not all(isinstance(each, str) for each in given):
        check.problem(key, f"must be a list of at most {most} texts, got {show(given)}")
        return []
    for index, each in enumerate(given):
        if known is not None and each not in known:
            check.problem(f"{key}/{index}", f"{show(each)} is no kind of event; there are {', '.join(known)}")
        elif not 0 < len(each) <= _MAX_QUEUE or not each.isprintable():
            check.problem(f"{key}/{index}", f"must be 1 to {_MAX_QUEUE} characters on one line")
    return list(dict.fromkeys(given))


def _ids(value: dict[str, Any]) -> list[int]:
    check = Check(value, ("ids",))
    ids = [] if value.get("ids") is None else value["ids"]
    good = isinstance(ids, list) and all(type(each) is int and 0 < each < 1 << 62 for each in ids)
    if not good or len(ids) > _MAX_IDS:
        check.problem("ids", f"must be a list of at most {_MAX_IDS} numbers of dead letters, got {show(ids)}")
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
    """An address without what may be a secret in it."""
    parts = urlsplit(url)
    rest = "/…" if parts.path not in ("", "/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{rest}"
