"""The table of rights: each verb of each route, and whom it is for. `test_table.py` tries each of its rows.

`python -m tests.contract.access.table` prints docs/reference/rights.md.
"""

import hashlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mesos_gpu.cli.access.catalogue import catalogue
from tests.contract.access.commands import COMMANDS, LOCAL
from tests.contract.access.scene import APP, CALLERS, HOOKED, Scene

#: What the queue research may book, when nothing else is booked.
BOOKED: Final = {"queue": "research", "gpus": 1, "from": "tomorrow 12:00", "for_s": 60}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as somebody sends it."""

    path: str
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A verb of a route.

    Attributes:
        route: As the router has it.
        verb: With the kind of path before it where the route has several.
        whom: A letter for each of `CALLERS`: x: allowed, -: refused.
        ask: Makes what the request is about, and the request.
        notes: What those see or may who are allowed something, where that is less than all.
    """

    route: str
    verb: str
    whom: str
    ask: Callable[[Scene], Asked]
    notes: str = ""

    def __post_init__(self) -> None:
        assert len(self.whom) == len(CALLERS), self
        assert set(self.whom) <= set("x-"), self


def _to(path: str, **more: Any) -> Callable[[Scene], Asked]:
    return lambda _: Asked(path, more)


def _job(below: str = "", before: str = "/v1/jobs/", **more: Any) -> Callable[[Scene], Asked]:
    return lambda scene: Asked(f"{before}{scene.job()}{below}", more)


def _array(**more: Any) -> Callable[[Scene], Asked]:
    return lambda scene: Asked(f"/v1/arrays/{scene.job(array='0-3')}", more)


def _booking(**more: Any) -> Callable[[Scene], Asked]:
    return lambda scene: Asked(f"/v1/bookings/{scene.booking()}", more)


def _hook(below: str = "", **more: Any) -> Callable[[Scene], Asked]:
    return lambda scene: Asked(f"/v1/webhooks/{scene.webhook()}{below}", more)


def _app(below: str = "", before: str = "/v2/apps", **more: Any) -> Callable[[Scene], Asked]:
    return lambda scene: Asked(f"{before}{scene.app()}{below}", more)


def _group(below: str = "", **more: Any) -> Callable[[Scene], Asked]:
    def ask(scene: Scene) -> Asked:
        scene.app()
        return Asked(f"/v2/groups/research{below}", more)

    return ask


def _root(**more: Any) -> Callable[[Scene], Asked]:
    def ask(scene: Scene) -> Asked:
        scene.app()
        return Asked("/v2/groups", more)

    return ask


def _version_of(path: Callable[[Scene], str]) -> Callable[[Scene], Asked]:
    def ask(scene: Scene) -> Asked:
        below = f"{path(scene)}/versions"
        known = scene.made("boss", "GET", below).json()
        return Asked(f"{below}/{(known['versions'] if isinstance(known, dict) else known)[0]}")

    return ask


def _app_path(scene: Scene) -> str:
    return f"/v2/apps{scene.app()}"


def _group_path(scene: Scene) -> str:
    scene.app()
    return "/v2/groups/research"


def _apps_listed(scene: Scene) -> Asked:
    return Asked("/v2/apps", {"json": [{"id": scene.app(), "instances": 0, "cmd": "sleep 8"}]})


def _task_of(scene: Scene) -> Asked:
    app, task = scene.task()
    return Asked(f"/v2/apps{app}/tasks/{task}")


def _tasks_listed(scene: Scene) -> Asked:
    return Asked("/v2/tasks/delete", {"json": {"ids": [scene.task()[1]]}})


def _form(scene: Scene) -> Asked:
    return Asked("/login", {"data": {"name": "x"}, "headers": {"Origin": scene.server.url}})


def _service(**more: Any) -> Callable[[Scene], Asked]:
    return lambda scene: Asked(f"/v1/services/{scene.service()}", more)


def _service_of(scene: Scene) -> Asked:
    return Asked(f"/v1/services/{scene.new('svc')}", {"json": {"apps": {scene.app(): 1}}})


def _queues_put(scene: Scene) -> Asked:
    return Asked("/v1/queues", {"json": scene.made("boss", "GET", "/v1/queues").json()})


def _queues_planned(scene: Scene) -> Asked:
    return Asked("/v1/plan/queues", _queues_put(scene).more)


def _queue(**more: Any) -> Callable[[Scene], Asked]:
    def ask(scene: Scene) -> Asked:
        return Asked("/v1/queues/research", {"headers": {"If-Match": f'"{scene.queues()}"'}, **more})

    return ask


def _grant(scene: Scene) -> Asked:
    _budget(scene)
    return Asked("/v1/budgets/grants", {"json": {"queue": "research", "gpu_hours": 1}})


def _budget(scene: Scene) -> None:
    tag = {"If-Match": f'"{scene.queues()}"'}
    body = {"budget": {"gpu_hours": 10}}
    scene.made("boss", "PATCH", "/v1/queues/research", json=body, headers=tag)


def _queue_share(scene: Scene) -> Asked:
    scene.queues()
    return Asked("/v1/queue-shares/research")


def _queue_why(scene: Scene) -> Asked:
    scene.queues()
    return Asked("/v1/queue-why/research")


def _queue_version(scene: Scene) -> Asked:
    return Asked(f"/v1/queue-versions/{scene.queues()}")


def _piece(scene: Scene) -> Asked:
    data = scene.new("code").encode()
    digest, sent = hashlib.sha256(data).hexdigest(), {"Content-Type": "application/octet-stream"}
    query = f"?offset=0&size={len(data)}"
    return Asked(f"/v1/uploads/{digest}{query}", {"data": data, "headers": sent})


def _archive(scene: Scene) -> Asked:
    return Asked(f"/v1/uploads/{'0' * 64}")


_JOB: Final = {"command": "true", "queue": "research", "cpus": 1000}
_REASON: Final = {"reason": "fan"}
_OWN_SEEN: Final = "those that one may see"
_ALL_ONES_OWN: Final = "where all apps are one's own"
_HIDDEN: Final = "a viewer sees no command"

V1: Final = (
    Row("/v1/jobs", "GET", "-xxxxx", _to("/v1/jobs"), _OWN_SEEN),
    Row("/v1/jobs", "POST", "---x-x", _to("/v1/jobs", json=_JOB)),
    Row("/v1/jobs/{id}", "GET", "-x-xxx", _job(), _HIDDEN),
    Row("/v1/jobs/{id}", "PATCH", "---xxx", _job(json={"gpu_compute_pct": 50})),
    Row("/v1/jobs/{id}", "DELETE", "---xxx", _job()),
    Row("/v1/arrays/{id}", "GET", "-x-xxx", _array(), _HIDDEN),
    Row("/v1/jobs/{id}/resize", "DELETE", "---xxx", _job("/resize")),
    Row("/v1/events", "GET", "-xxxxx", _to("/v1/events"), _OWN_SEEN),
    Row("/v1/bookings", "GET", "-xxxxx", _to("/v1/bookings"), "of queues that one sees bookings of"),
    Row(
        "/v1/bookings",
        "POST",
        "----xx",
        lambda scene: Asked("/v1/bookings", {"json": {"name": scene.new("book"), **BOOKED}}),
    ),
    Row("/v1/bookings/{id}", "GET", "-x-xxx", _booking()),
    Row("/v1/bookings/{id}", "PUT", "----xx", _booking(json={"for_s": 120})),
    Row("/v1/bookings/{id}", "DELETE", "----xx", _booking()),
    Row("/v1/webhooks", "GET", "----xx", _to("/v1/webhooks")),
    Row("/v1/webhook-versions", "GET", "----xx", _to("/v1/webhook-versions")),
    Row("/v1/webhooks/{name}", "GET", "----xx", _hook()),
    Row("/v1/webhooks/{name}", "PUT", "----xx", _hook(json={"url": HOOKED})),
    Row("/v1/webhooks/{name}", "DELETE", "----xx", _hook()),
    Row("/v1/webhooks/{name}/test", "POST", "----xx", _hook("/test", json={})),
    Row("/v1/webhooks/{name}/dead", "GET", "----xx", _hook("/dead")),
    Row("/v1/webhooks/{name}/retry", "POST", "----xx", _hook("/retry", json={})),
    Row("/v1/history", "GET", "-xxxxx", _to("/v1/history"), _OWN_SEEN),
    Row("/v1/jobs/{id}/keep", "PUT", "---xxx", _job("/keep", json={"for_s": 60})),
    Row("/v1/jobs/{id}/keep", "DELETE", "---xxx", _job("/keep")),
    Row("/v1/jobs/{id}/checkpoint", "POST", "---x-x", _job("/checkpoint")),
    Row("/v1/jobs/{id}/files", "GET", "---x-x", _job("/files")),
    Row("/v1/jobs/{id}/files", "POST", "---x-x", _job("/files", json={"what": "list"})),
    Row("/v1/jobs/{id}/exec", "POST", "---x-x", _job("/exec", json={"argv": ["true"]})),
    Row("/v1/jobs/{id}/forward", "POST", "---x-x", _job("/forward", json={"ports": [80]})),
    Row("/v1/jobs/{id}/tasks", "GET", "-x-xxx", _job("/tasks")),
    Row("/v1/jobs/{id}/command", "GET", "---xxx", _job("/command")),
    Row("/v1/jobs/{id}/use", "GET", "-x-xxx", _job("/use")),
    Row("/v1/jobs/{id}/logs", "GET", "---x-x", _job("/logs")),
    Row("/v1/jobs/{id}/changes", "GET", "-x-xxx", _job("/changes")),
    Row("/v1/uploads", "GET", "--xx-x", _to("/v1/uploads"), "one's own"),
    Row("/v1/uploads/{sha256}", "GET", "--xx-x", _archive, "one's own"),
    Row("/v1/uploads/{sha256}", "PUT", "--xx-x", _piece),
    Row("/v1/uploads/{sha256}", "DELETE", "--xx-x", _archive, "one's own"),
    Row("/v1/volumes", "GET", "-xxxxx", _to("/v1/volumes"), "one's own; all for those who may read all jobs"),
    Row(
        "/v1/volumes/{name}",
        "DELETE",
        "---xxx",
        lambda scene: Asked(f"/v1/volumes/{scene.volume()}?user=ann"),
    ),
    Row(
        "/v1/uploads/{sha256}/archive",
        "GET",
        "xxxxxx",
        _to(f"/v1/uploads/{'0' * 64}/archive"),
        "executors of jobs that need it, by a seal of theirs; there is none for others",
    ),
    Row("/v1/why/{id}", "GET", "-x-xxx", _job(before="/v1/why/")),
    Row("/v1/queue", "GET", "-xxxxx", _to("/v1/queue"), _OWN_SEEN),
    Row("/v1/queues", "GET", "-xxxxx", _to("/v1/queues"), _OWN_SEEN),
    Row("/v1/queues", "PUT", "----xx", _queues_put),
    Row("/v1/queues/{queue:path}", "GET", "-x-xxx", _queue()),
    Row("/v1/queues/{queue:path}", "PUT", "----xx", _queue(json={"weight": 2})),
    Row("/v1/queues/{queue:path}", "PATCH", "----xx", _queue(json={"weight": 3})),
    Row("/v1/queues/{queue:path}", "DELETE", "----xx", _queue()),
    Row("/v1/queue-shares", "GET", "-xxxxx", _to("/v1/queue-shares"), _OWN_SEEN),
    Row("/v1/queue-shares/{queue:path}", "GET", "-x-xxx", _queue_share),
    Row("/v1/queue-why/{queue:path}", "GET", "-x-xxx", _queue_why),
    Row("/v1/queue-versions", "GET", "-x--xx", _to("/v1/queue-versions")),
    Row("/v1/queue-versions/{version}", "GET", "-x--xx", _queue_version),
    Row("/v1/plan/queues", "POST", "----xx", _queues_planned),
    Row("/v1/plan/jobs", "POST", "---x-x", _to("/v1/plan/jobs", json=_JOB)),
    Row("/v1/plan/defrag", "POST", "-xxxxx", _to("/v1/plan/defrag", json={"gpus": 1})),
    Row("/v1/plan/defrag/{id}", "GET", "-x-xxx", _job(before="/v1/plan/defrag/")),
    Row("/v1/gpus", "GET", "-xxxxx", _to("/v1/gpus"), "whose jobs they hold: of those that one may see"),
    Row("/v1/gpus/{id}", "GET", "-xxxxx", _to("/v1/gpus/g0")),
    Row("/v1/cards", "GET", "-xxxxx", _to("/v1/cards"), "whose jobs they hold: of those that one may see"),
    Row("/v1/use", "GET", "-xxxxx", _to("/v1/use")),
    Row("/v1/gpus/{id}/use", "GET", "-xxxxx", _to("/v1/gpus/g0/use")),
    Row("/v1/gpus/{id}/changes", "GET", "-xxxxx", _to("/v1/gpus/g0/changes")),
    Row("/v1/gpus/{id}/drain", "POST", "----xx", _to("/v1/gpus/g0/drain", json=_REASON)),
    Row("/v1/gpus/{id}/drain", "DELETE", "----xx", lambda s: Asked(f"/v1/{s.drained('gpus/g0')}/drain")),
    Row("/v1/gpus/{id}/reset", "POST", "----xx", _to("/v1/gpus/g0/reset", json=_REASON)),
    Row("/v1/nodes", "GET", "-xxxxx", _to("/v1/nodes")),
    Row("/v1/nodes/{id}", "GET", "-xxxxx", _to("/v1/nodes/a1")),
    Row("/v1/nodes/{id}/use", "GET", "-xxxxx", _to("/v1/nodes/a1/use")),
    Row("/v1/nodes/{id}/drain", "POST", "----xx", _to("/v1/nodes/a1/drain", json=_REASON)),
    Row("/v1/nodes/{id}/drain", "DELETE", "----xx", lambda s: Asked(f"/v1/{s.drained('nodes/a1')}/drain")),
    Row("/v1/services", "GET", "-xxxxx", _to("/v1/services")),
    Row("/v1/services/{name}", "GET", "-x-xxx", _service()),
    Row("/v1/services/{name}", "PUT", "---x-x", _service_of, "of apps that one may change"),
    Row("/v1/services/{name}", "DELETE", "---x-x", _service(), "of apps that one may change"),
    Row("/v1/templates", "GET", "--xx-x", _to("/v1/templates")),
    Row("/v1/templates/{name}/render", "POST", "--xx-x", _to("/v1/templates/vllm/render", json={})),
    Row("/v1/tasks", "GET", "-xxxxx", _to("/v1/tasks"), _OWN_SEEN),
    Row("/v1/tasks/unknown", "GET", "----xx", _to("/v1/tasks/unknown")),
    Row("/v1/tasks/unknown/{id}", "DELETE", "----xx", _to("/v1/tasks/unknown/t")),
    Row("/v1/tasks/unknown/{id}/adopt", "POST", "----xx", _to("/v1/tasks/unknown/t/adopt")),
    Row("/v1/upgrade", "GET", "-xxxxx", _to("/v1/upgrade")),
    Row("/v1/leader", "GET", "-xxxxx", _to("/v1/leader")),
    Row("/v1/audit", "GET", "----xx", _to("/v1/audit")),
    Row("/v1/usage", "GET", "-xxxxx", _to("/v1/usage"), "what jobs have used that one may see"),
    Row("/v1/budgets", "GET", "-xxxxx", _to("/v1/budgets"), "of queues and users whose jobs one may see"),
    Row("/v1/budgets/grants", "POST", "----xx", _grant),
    Row("/v1/usage/export", "GET", "-xxxxx", _to("/v1/usage/export"), "of jobs that one may see"),
    Row("/v1/access", "GET", "----xx", _to("/v1/access")),
    Row(
        "/v1/access",
        "PUT",
        "-----x",
        lambda s: Asked("/v1/access", {"json": s.made("boss", "GET", "/v1/access").json()}),
    ),
    Row("/v1/access/versions", "GET", "----xx", _to("/v1/access/versions")),
    Row("/v1/access/versions/{version}", "GET", "----xx", _to("/v1/access/versions/1")),
    Row(
        "/v1/access/check",
        "POST",
        "-xxxxx",
        _to("/v1/access/check", json={"right": "job:run"}),
        "of others: with access:see",
    ),
    Row("/v1/access/rights", "GET", "-xxxxx", _to("/v1/access/rights")),
    Row("/v1/tokens", "GET", "--xxxx", _to("/v1/tokens"), "one's own; an admin all"),
    Row("/v1/tokens", "POST", "--xxxx", _to("/v1/tokens", json={}), "of one's own name; an admin of all"),
    Row("/v1/tokens/{id}", "GET", "---x-x", lambda s: Asked(f"/v1/tokens/{s.token()}")),
    Row("/v1/tokens/{id}", "DELETE", "---x-x", lambda s: Asked(f"/v1/tokens/{s.token()}")),
    Row("/v1/status", "GET", "-xxxxx", _to("/v1/status")),
    Row("/v1/health", "GET", "xxxxxx", _to("/v1/health")),
    Row("/v1/openapi.json", "GET", "xxxxxx", _to("/v1/openapi.json")),
    Row("/v1/login", "GET", "xxxxxx", _to("/v1/login")),
    Row("/v1/whoami", "GET", "xxxxxx", _to("/v1/whoami")),
    Row("/v1/session", "POST", "xxxxxx", _to("/v1/session"), "who has proved a name"),
    Row("/v1/session", "DELETE", "xxxxxx", _to("/v1/session")),
    Row("/login", "GET", "xxxxxx", _to("/login")),
    Row("/login", "POST", "xxxxxx", _form, "who knows the password"),
    Row("/v1/sd", "GET", "-xxxxx", _to("/v1/sd"), "of apps: those that one may see"),
    Row("/metrics", "GET", "-x--xx", _to("/metrics")),
    Row("/metrics/prometheus", "GET", "-x--xx", _to("/metrics/prometheus")),
    Row("/", "GET", "xxxxxx", _to("/")),
    Row("/static/{name}", "GET", "xxxxxx", _to("/static/app.js")),
)
_NEW: Final = {**APP, "instances": 0}
V2: Final = (
    Row("/ping", "GET", "xxxxxx", _to("/ping")),
    Row("/ui", "all GET", "xxxxxx", _to("/ui")),
    Row("/ui", "one GET", "xxxxxx", _to("/ui/x")),
    Row("/v2/info", "GET", "-xxxxx", _to("/v2/info")),
    Row("/v2/plugins", "GET", "-xxxxx", _to("/v2/plugins")),
    Row("/v2/leader", "GET", "-xxxxx", _to("/v2/leader")),
    Row("/v2/leader", "DELETE", "----xx", _to("/v2/leader"), "where there are several schedulers"),
    Row("/v2/events", "GET", "-xxxxx", _to("/v2/events", headers={"Accept": "text/event-stream"}), _OWN_SEEN),
    Row("/v2/apps", "all GET", "-xxxxx", _to("/v2/apps"), _OWN_SEEN),
    Row(
        "/v2/apps",
        "all POST",
        "---x-x",
        lambda s: Asked("/v2/apps", {"json": {"id": f"/research/{s.new('n')}", **_NEW}}),
    ),
    Row("/v2/apps", "all PUT", "---x-x", _apps_listed),
    Row("/v2/apps", "all PATCH", "---x-x", _apps_listed),
    Row("/v2/apps", "one GET", "-x-xxx", _app(), _HIDDEN),
    Row("/v2/apps", "one PUT", "---x-x", _app(json={"cmd": "sleep 8"})),
    Row("/v2/apps", "one PATCH", "---x-x", _app(json={"cmd": "sleep 8"})),
    Row("/v2/apps", "one DELETE", "---x-x", _app()),
    Row("/v2/apps", "* GET", "-xxxxx", _to("/v2/apps/research/*"), _OWN_SEEN),
    Row("/v2/apps", "restart POST", "---x-x", _app("/restart")),
    Row("/v2/apps", "tasks GET", "-x-xxx", _app("/tasks")),
    Row("/v2/apps", "tasks DELETE", "---x-x", _app("/tasks")),
    Row("/v2/apps", "tasks/item DELETE", "---x-x", _task_of),
    Row("/v2/apps", "versions GET", "-x-xxx", _app("/versions")),
    Row("/v2/apps", "versions/item GET", "-x-xxx", _version_of(_app_path)),
    Row("/v2/groups", "all GET", "-xxxxx", _to("/v2/groups"), _OWN_SEEN),
    Row(
        "/v2/groups",
        "all POST",
        "---x-x",
        lambda s: Asked("/v2/groups", {"json": {"id": f"/research/{s.new('g')}"}}),
    ),
    Row("/v2/groups", "all PUT", "---x-x", _root(json={"id": "/", "groups": []}), _ALL_ONES_OWN),
    Row("/v2/groups", "all PATCH", "--xx-x", _root(json={}), "it is not done for anybody"),
    Row("/v2/groups", "all DELETE", "---x-x", _root(), _ALL_ONES_OWN),
    Row("/v2/groups", "one GET", "-x-xxx", _group()),
    Row(
        "/v2/groups",
        "one POST",
        "---x-x",
        lambda s: Asked(f"/v2/groups/research/{s.new('g')}", {"json": {"apps": []}}),
    ),
    Row("/v2/groups", "one PUT", "---x-x", _group(json={"apps": []})),
    Row("/v2/groups", "one PATCH", "---x-x", _group(json={"apps": []})),
    Row("/v2/groups", "one DELETE", "---x-x", _group()),
    Row("/v2/groups", "versions GET", "-x-xxx", _group("/versions")),
    Row("/v2/groups", "versions/item GET", "-x-xxx", _version_of(_group_path)),
    Row("/v2/tasks", "all GET", "-xxxxx", _to("/v2/tasks"), _OWN_SEEN),
    Row(
        "/v2/tasks/delete",
        "POST",
        "--xx-x",
        _tasks_listed,
        "of apps that one may change; others' ids are as if unknown",
    ),
    Row("/v2/deployments", "all GET", "-xxxxx", _to("/v2/deployments"), _OWN_SEEN),
    Row("/v2/deployments", "one DELETE", "---x-x", lambda s: Asked(f"/v2/deployments/{s.deployment()}")),
    Row("/v2/queue", "all GET", "-xxxxx", _to("/v2/queue"), _OWN_SEEN),
    Row("/v2/queue", "delay DELETE", "---x-x", lambda s: Asked(f"/v2/queue{s.delayed()}/delay")),
    *(
        Row(
            "/v2/pods",
            f"{kind} {verb}",
            "-xxxxx",
            _to(f"/v2/pods{'/p' if kind == 'one' else ''}"),
            "there are none",
        )
        for kind in ("all", "one")
        for verb in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    ),
)
ROWS: Final = (*V1, *V2)


def _marks(whom: str) -> str:
    return " | ".join({"x": "yes", "-": "no"}[letter] for letter in whom)


def _head(first: str) -> list[str]:
    names = [*CALLERS]
    return [f"| {first} | {' | '.join(names)} | |", f"|---|{'---|' * len(names)}---|"]


def _routes(rows: Sequence[Row]) -> list[str]:
    return [
        *_head("verb and route"),
        *(f"| `{row.verb} {row.route}` | {_marks(row.whom)} | {row.notes} |" for row in rows),
    ]


def _fill(heading: str, text: str) -> str:
    return heading + textwrap.fill(text, 155, break_long_words=False, break_on_hyphens=False)


def page() -> str:
    """The text of docs/reference/rights.md."""
    parts = [
        catalogue(),
        _fill(
            "## Who may what\n",
            "Made by a test that tries each request and each command as each of them "
            "(`tests/contract/access/test_table.py`, `tests/contract/access/test_commands.py`). All of it is "
            "about a job, an app, a service and a token of *owner*, in the owner's queue and below the owner's "
            "path; the queue shares nothing. A *user of another queue* has the role `user` there. What one may "
            "not know of is answered as if it were not there (404).",
        ),
        "### The interface of /v1",
        "\n".join(_routes(V1)),
        "### Marathon's interface\nOf a path with an id, `one` is the app or group itself; `all` is the collection.",
        "\n".join(_routes(V2)),
        "### Commands",
        "\n".join([*_head("command"), *(f"| `{each.name}` | {_marks(each.whom)} | |" for each in COMMANDS)]),
        _fill(
            "",
            "Commands that ask no scheduler, or only for one's own login, may what the Unix user may who calls them: "
            + ", ".join(f"`{name}`" for name in LOCAL)
            + ".",
        ),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
