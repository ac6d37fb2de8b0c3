"""What a scheduler answers of tokens, budgets, records, webhooks, apps, services, versions, queues: for their lists."""

from typing import Any, Final

from mesos_gpu.wire.marathon.moments import stamp
from tests.doubles.fake_rest import FakeRest

MAX_LENGTH: Final = "research/computer-vision/segmentation-of-street-scenes"
DAY_S: Final = 86400.0
AT: Final = 1_790_000_000.0  # of what is told as a moment; what is told as an age is of now
UUID: Final = "748f8361-3a3d-5b06-b7ad-d1f4d5f2bcd6"
MAIL: Final = "ann.of.the.platform@example.com"


def fill_records(rest: FakeRest, now: float) -> None:
    """Have `rest` answer them."""
    for path, answer in (_of_access(now) | _of_accounts() | _of_hooks(now) | _of_apps(now)).items():
        rest.fixed[f"GET {path}"] = (200, answer)


def _of_access(now: float) -> dict[str, Any]:
    token = {
        "id": "4f1c22ab", "name": MAIL, "groups": ["research", "on-call"], "rights": ["job:run", "job:kill:own"],
        "queues": ["research", "research/*"], "apps": ["/*"], "comment": "for the nightly export of all tables",
        "created_at": now - 3 * DAY_S, "created_by": MAIL, "made_with": None, "expires_at": now + 27 * DAY_S + 9,
        "used_at": now - 125, "used_from": "192.0.2.7:41234",
    }  # fmt: skip
    old = {"id": "9", "name": "ci", "comment": "", "queues": ["*"], "rights": ["*"], "used_at": None}
    tokens = [token, {**token, **old, "expires_at": now - 5, "used_from": None}]
    version = {
        "at": AT,
        "by": MAIL,
        "comment": "new driver on all nodes of the cellar, and no one may stop it",
    }
    versions = [{**version, "version": n, "roles": 3, "bindings": n} for n in (12, 3)]
    rights = [
        {"name": "job:run", "allows": "submit jobs", "scope": "job", "own": True, "pattern": True},
        {"name": "gpu:reset", "allows": "reset cards", "scope": "cluster", "own": False, "pattern": False},
    ]
    limits = {
        "users": [],
        "images": ["*"],
        "volumes": [],
        "highest_priority": 10,
        "must_be_preemptible": False,
    }
    roles = [{"name": "user", "rights": ["job:run", "job:kill:own", "view"], "limits": limits}]
    return {
        "/v1/tokens": {"tokens": tokens},
        "/v1/access/versions": {"versions": versions},
        "/v1/access/rights": {"rights": rights, "roles": roles},
        "/v1/queue-versions": {"versions": [{**version, "version": 3, "queues": 17}]},
        "/v1/audit": {"records": _records(), "cursor": None, "lost": 0, "full": None},
    }


def _records() -> list[dict[str, Any]]:
    done = {
        "id": "changes-7", "at": AT, "who": MAIL, "proof": "oidc", "proved": True, "address": "192.0.2.7:41234",
        "relayed": None, "what": "DELETE /v1/jobs/{id}", "right": "job:kill",
        "on": ["job:nightly-export-of-all-tables-07f2c4d4"], "result": "done", "status": None, "reason": None,
        "request_id": "5d1b2c3d4e5f", "detail": None, "count": 1,
    }  # fmt: skip
    refused = {"id": "refusals-2", "at": AT - 60, "who": "root", "proved": False, "proof": "none", "count": 3}
    return [
        done,
        {
            **done,
            **refused,
            "result": "refused",
            "status": 403,
            "reason": "forbidden",
            "detail": "force=true",
        },
    ]


def _of_accounts() -> dict[str, Any]:
    budget = {
        "queue": MAX_LENGTH, "user": None, "begins": AT, "ends": AT + 30 * DAY_S, "gpu_hours": 10_000.0,
        "carried_hours": 120.5, "granted_hours": -7.5, "used_hours": 9876.25, "left_hours": 236.75,
        "used_percent": 97, "told_percent": 90, "rate_gpus": 14.5, "empty": False, "empty_at": AT + DAY_S,
        "on_empty": "no_start", "safe": True, "next_period": None,
    }  # fmt: skip
    small = {"queue": "ml", "user": MAIL, "gpu_hours": 5.0, "carried_hours": 0.0, "granted_hours": 0.0}
    spent = {"used_hours": 5.0, "left_hours": 0.0, "used_percent": 100, "rate_gpus": 0.0, "empty": True}
    return {"/v1/budgets": {"budgets": [budget, {**budget, **small, **spent, "empty_at": None}]}}


def _of_hooks(now: float) -> dict[str, Any]:
    hook = {
        "name": "ops", "url": "https://hooks.example.com/…", "kinds": ["gpu", "node", "failed"],
        "queues": [MAX_LENGTH], "at": now - 7200, "by": MAIL, "comment": "the room of those on call", "waiting": 12,
        "dead": 3,
    }  # fmt: skip
    plain = {"name": "done", "kinds": [], "queues": [], "comment": "", "waiting": 0, "dead": 0}
    letter = {"id": 7, "event": 4711, "kind": "gpu", "tries": 12, "given_up_at": AT}
    refused = {**letter, "error": "hooks.example.com answered 410 Gone after 0.2 s: this room is closed"}
    change = {"version": 4, "at": AT, "by": MAIL, "what": "put ops", "webhooks": ["done", "ops"]}
    return {
        "/v1/webhooks": {"webhooks": [hook, {**hook, **plain}], "version": 4},
        "/v1/webhooks/ops/dead": {"dead": [refused, {**refused, "id": 12, "error": "it timed out"}]},
        "/v1/webhook-versions": {"versions": [change]},
    }


def _of_apps(now: float) -> dict[str, Any]:
    current = stamp(AT)
    task = {
        "id": f"shop_web.instance-{UUID}._app.1", "state": "TASK_RUNNING", "host": "gpu-1.rack7.example.com",
        "ports": [31_000, 31_001], "stagedAt": stamp(now - 3690), "version": current,
        "healthCheckResults": [{"alive": True}],
    }  # fmt: skip
    old: dict[str, Any] = {
        "id": f"shop_web.instance-{UUID.replace('7', '8')}._app.1",
        "stagedAt": stamp(now - 90_061),
    }
    old |= {"version": stamp(AT - 60), "host": "gpu-2.rack7.example.com", "healthCheckResults": []}
    app = {
        "id": "/shop/web", "instances": 2, "tasksRunning": 2, "tasks": [task, {**task, **old}], "gpus": 0,
        "version": current, "versionInfo": {"lastConfigChangeAt": current, "lastScalingAt": current},
    }  # fmt: skip
    share = {"id": "/shop/web", "weight": 90, "share": 0.9, "exists": True, "instances": 2, "serving": 2}
    server = {"task_id": task["id"], "app": "/shop/web", "host": task["host"], "port": 31_000, "weight": 45}
    service = {
        "name": "web", "mode": "http", "port": 8080, "hosts": ["shop.example.com", "www.shop.example.com"],
        "balance": "leastconn", "sticky": False, "apps": [share, {**share, "id": "/shop/web-canary", "weight": 10}],
        "servers": [server], "asked": None, "problems": [], "path": None, "login": False, "https_only": False,
        "left_out": None, "left_out_of_traefik": None,
    }  # fmt: skip
    upload = {"sha256": "0a1b2c3d4e5f" + "0" * 52, "received_bytes": 3 << 20, "used_at": now - 59}
    kept = [{**upload, "complete": True, "jobs": ["train-1a2b3c4d", "/shop/web"]}]
    kept += [{**upload, "sha256": "f" * 64, "complete": False, "jobs": []}]
    volume = {
        "id": UUID, "name": "data", "owner": MAIL, "user": "ann", "size_mib": 10240,
        "hostname": "gpu-1.rack7.example.com", "jobs": ["train-1a2b3c4d"], "created_at": now - 90_061,
        "used_at": now - 59, "removing": False,
    }  # fmt: skip
    fresh: dict[str, Any] = {
        "name": "new-results",
        "hostname": None,
        "jobs": [],
        "used_at": None,
        "size_mib": 1536,
    }
    return {
        "/v1/volumes": {"volumes": [volume, {**volume, **fresh}], "owner_limit_mib": 102_400},
        "/v2/apps/shop/web": {"app": app},
        "/v2/apps/shop/web/versions": {"versions": [current, stamp(AT - 60)]},
        "/v1/services": {"services": [service]},
        "/v1/uploads": {"uploads": kept, "archive_limit_bytes": 1 << 29, "owner_limit_bytes": 1 << 31},
    }


def fill_queues(rest: FakeRest, now: float) -> None:
    """A tree of queues with hours and pools, what each holds, and what was used."""
    day = {"guarantee_gpus": 8, "borrow_limit_gpus": None, "lend_limit_gpus": None, "weight": 1}
    in_force = {
        "since": now - 3599.5, "until": now + 7200.5, "queues": {MAX_LENGTH: day},
        "next": {MAX_LENGTH: {**day, "guarantee_gpus": {"a100": 0}, "weight": 2.5}},
    }  # fmt: skip
    queues = {
        "research": {"pools": ["a100", "default"], "overflow_after_s": 600, "stop": "none"},
        MAX_LENGTH: {"stop": "hold"},
    }
    rest.fixed["GET /v1/queues"] = (200, {"version": 3, "queues": queues, "in_force": in_force})
    shares = [
        queue_share("default", pending_gpus=9),
        queue_share("production", guarantee_gpus=1024, held_gpus=1020.25, due_gpus=1024),
        queue_share(
            MAX_LENGTH,
            guarantee_gpus=8,
            limit_gpus=64,
            held_gpus=14.5,
            over_gpus=6.5,
            pending_gpus=4,
            due_gpus=12,
        ),
    ]
    rest.fixed["GET /v1/queue-shares"] = (200, {"shares": shares})
    rows = [
        _use(
            "production", gpu_hours=175319.2, cost_hours=701276.8, charged_hours=701276.8, busy_gpu_hours=131489.2,
            idle_gpu_hours=40001.0, unknown_gpu_hours=3829.0, wanted_gpu_hours=1204.3, returned=17, wait_p90_s=0.0,
        ),
        _use(
            MAX_LENGTH, gpu_hours=310.5, cost_hours=310.5, charged_hours=155.25, refunded_hours=2.0,
            borrowed_hours=120.75, lost_hours=1.5, unmet_gpu_hours=40.0, wait_p90_s=5400.0,
            unknown_gpu_hours=310.5,
        ),
        _use("default", unmet_gpu_hours=3.2, wait_p90_s=None),
    ]  # fmt: skip
    asked = {"since": 0.0, "until": 86400.0, "by": ["queue"]}
    rest.fixed["GET /v1/usage"] = (200, {**asked, "rows": rows})


def queue_share(path: str, **given: float) -> dict[str, Any]:
    """A queue that holds and is owed nothing, but for what is given."""
    gpus = (
        "guarantee", "held", "pending", "over", "lent", "due", "given", "floor", "kept", "rest", "borrowed"
    )  # fmt: skip
    counts = {"weight": 1, "weights": 3, "used_gpu_hours": 0.0, "limit_gpus": None}
    return {"path": path, "pool": "default", **{f"{name}_gpus": 0 for name in gpus}, **counts, **given}


def _use(queue: str, **given: float | None) -> dict[str, Any]:
    names = (
        "gpu_hours", "cost_hours", "charged_hours", "refunded_hours", "borrowed_hours", "idle_hours", "lost_hours",
        "unmet_gpu_hours", "busy_gpu_hours", "idle_gpu_hours", "unknown_gpu_hours", "wanted_gpu_hours",
    )  # fmt: skip
    nothing = dict.fromkeys(
        ("period", "owner", "app", "job_class", "model", "pool", "wait_p50_s", "wait_p99_s")
    )
    return {
        **nothing,
        "queue": queue,
        "spans": 1,
        "returned": 0,
        "started": 1,
        **dict.fromkeys(names, 0.0),
        **given,
    }
