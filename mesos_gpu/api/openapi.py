"""The OpenAPI document of /v1: its operations here, its shapes from api/bodies.py and api/shapes.py.

`python -m mesos_gpu.api.openapi` prints it, as docs/reference/openapi.json has it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from mesos_gpu import __version__
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.audit import READS
from mesos_gpu.api.http.door import BODY_S, MAX_QUERY, MAX_TARGET
from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.spec import (
    access,
    audit,
    bodies,
    events,
    queue_shares,
    queues,
    sessions,
    shapes,
    uploads,
    usage,
    ways,
)
from mesos_gpu.api.spec import services as service_shapes
from mesos_gpu.api.spec.cluster import bookings, cards, hooks, line, lists, templates, upgrade
from mesos_gpu.api.spec.gpus.use import ClusterUse, UseOverTime
from mesos_gpu.api.spec.operation import MANY_PATTERNS, Operation, in_query
from mesos_gpu.api.spec.schema import Schema, Schemas
from mesos_gpu.api.spec.tasks import channel, command, past, volumes
from mesos_gpu.api.spec.tasks.array import Array
from mesos_gpu.api.spec.tasks.submitted import SubmittedJob
from mesos_gpu.api.v1 import audit as records
from mesos_gpu.api.v1 import services
from mesos_gpu.api.v1.listing import ACTIVE, PATTERNS, Order
from mesos_gpu.api.v1.logs import ENCODINGS
from mesos_gpu.model.access.record import Result
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.wire.export import prometheus
from mesos_gpu.wire.listing.filters import By
from mesos_gpu.wire.mesos.operations import MAX_BY

_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_NAMES: Final = re.compile(r"\{(\w+)\}")
_ABOUT: Final = f"""\
The interface of mesos_gpu's scheduler. Times are seconds since the epoch, amounts carry their unit in the name.
A field that does not apply is null, never absent; fields may be added to answers.
Bodies are JSON of at most {asked.MAX_BODY} bytes.
Where the operator has set up proofs of a name, a request shows one: a token as `Authorization: Bearer`, a name and a
password as HTTP basic, a certificate, or a session's cookie. What a web page of another origin may not do is refused.

Beside it the scheduler speaks Marathon's interface, below /v2."""


def _number(number: asked.Number, about: str) -> Schema:
    kind = "integer" if number.whole else "number"
    schema = {"type": kind, "minimum": number.least, "maximum": number.most, "default": number.default}
    return in_query(number.name, schema, about)


_STATES: Final = {"enum": [ACTIVE, *(state.value for state in JobState)]}
_BY: Final = in_query("by", {"type": "string", "maxLength": MAX_BY, "pattern": "^[^\\x00\\n]*$"}, "who asks")
_DRAIN: Final = {"reason": "fan noise", "by": "ann", "deadline_s": 3600}
_JOBS: Final[Mapping[str, Mapping[str, Any]]] = {
    "whole GPUs": {"name": "train", "command": "python3 train.py", "cpus": 4, "mem_mib": 16384, "gpus": 2},
    "a quarter of one GPU": {"name": "notebook", "command": "jupyter lab", "gpus": 0.25},
    "an exact share": {
        "name": "serve", "command": "python3 serve.py", "gpu_compute_pct": 30, "gpu_memory_mib": 20480,
        "isolation": "strict",
    },
}  # fmt: skip
_ERROR: Final = {
    "error": {
        "code": "not-found",
        "message": "there is no job train-x",
        "remedy": "list the jobs with: mesos-gpu ps --all",
    }
}
_WIDER: Final = {
    By.USER: "; one that nobody has proved too",
    By.QUEUE: "; those below it too",
    By.APP: "; without its slash too",
    By.NODE: "; the first part of its name is enough",
}
_NODE: Final = in_query(
    "node", MANY_PATTERNS, f"the node is any of these; * stands for anything{_WIDER[By.NODE]}"
)
_FILTERS: Final = (
    in_query(
        "state", {"type": "array", "items": {"type": "string", **_STATES}}, "any of these; active: not ended"
    ),
    in_query("name", {"type": "string"}, "a part of the name"),
    in_query(
        "label", MANY_PATTERNS, "a key, or key=value, in whose value * stands for anything; all of these"
    ),
    *(
        in_query(key, MANY_PATTERNS, f"the {by} is any of these; * stands for anything{_WIDER.get(by, '')}")
        for key, by in PATTERNS.items()
    ),
    in_query(
        "order",
        {"type": "string", "enum": [*Order], "default": Order.NEWEST},
        "activity: what runs before what waits before what has ended, of each the newest first",
    ),
    in_query("search", {"type": "string"}, "a part of its id, name, owner, queue or host"),
    in_query(asked.FOLD_ARRAYS.name, {"type": "boolean", "default": False}, "arrays in place of their tasks"),
    in_query(asked.NO_INSTANCES.name, {"type": "boolean", "default": False}, "no instances of apps"),
    _number(asked.SKIP, "leave out so many of the first"),
    _number(asked.MAX_LISTED, "so many at most"),
)
_WAIT: Final = (
    _number(asked.AFTER_VERSION, "wait until the job's version exceeds this"),
    _number(asked.WAIT_S, "wait so long at most, in seconds"),
    in_query(
        asked.SHOW_ENV.name,
        {"type": "boolean", "default": False},
        "the values of its environment too; on the scheduler's own host only",
    ),
)
_WITHDRAW: Final = (_number(asked.ANSWER_S, "wait so long for the answer of its host, in seconds"),)
_RESIZE: Final = (
    in_query(
        asked.RESTART.name,
        {"type": "boolean", "default": False},
        "start the job again where it cannot be changed while it runs",
    ),
    *_WITHDRAW,
)
_LOGS: Final = (
    in_query("stream", {"type": "string", "enum": ["stdout", "stderr"], "default": "stdout"}, "which output"),
    _number(asked.OFFSET, "where to begin, in bytes; -N: the last N bytes"),
    _number(asked.LENGTH, "so many bytes at most, but at least one whole character"),
    in_query(
        "encoding",
        {"type": "string", "enum": [*ENCODINGS], "default": ENCODINGS[0]},
        "of data; base64: the bytes as they are",
    ),
    in_query("task_id", {"type": "string"}, "of this launch; default: the latest"),
    in_query(asked.TIMES.name, {"type": "boolean", "default": False}, "also when it was written"),
    in_query(
        asked.SINCE.name,
        {"type": "number", "minimum": asked.SINCE.least, "maximum": asked.SINCE.most},
        "what was written after that, in seconds since the epoch; offset counts if it is further",
    ),
)
_LONG: Final = {"type": "string", "maxLength": records.MAX_LENGTH}
_RECORDS: Final = (
    in_query("who", _LONG, "a name; a * at the end: all that begin so"),
    in_query("what", _LONG, "a right, or a part of verb and route"),
    in_query("on", _LONG, "kind:id, as job:train-1a2b3c4d, or an id; a * at the end: all that begin so"),
    in_query("result", {"type": "string", "enum": [result.value for result in Result]}, "how it ended"),
    _number(asked.SINCE, "from then on, in seconds since the epoch"),
    _number(asked.UNTIL, "before that"),
    _number(records.MAX_RECORDS, "so many at most"),
    in_query("cursor", {"type": "string"}, "as of the answer before"),
)
_CHANGES: Final = (_number(records.MAX_CHANGES, "so many at most"),)
_CONFLICT: Final = 409
_PLAIN: Final = "text/plain; charset=utf-8"
_FORMAT: Final = in_query(
    "format", {"type": "string", "enum": [*services.FORMATS], "default": services.JSON}, "for whom"
)
_GROUPS: Final = in_query(
    "group",
    {"type": "array", "items": {"type": "string"}},
    "also those that labels of apps ask for in these groups",
)
_TEXT: Final = {"type": "string"}
_NONE: Final = {"type": "null"}
_WHAT_RUNS: Final = [
    {"required": ["command"], "properties": {"command": _TEXT, "argv": _NONE}},
    {"required": ["argv"], "properties": {"argv": {"type": "array"}, "command": _NONE}},
    {"required": ["image"], "properties": {"image": _TEXT, "argv": _NONE, "command": _NONE}},
]

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/jobs"): Operation(
        "list_jobs", "Jobs, and how many match", {200: shapes.Jobs}, query=_FILTERS
    ),
    ("POST", "/v1/jobs"): Operation(
        "submit_job", "Queue a job", {201: SubmittedJob}, (429,), body=bodies.JobRequest, examples=_JOBS
    ),
    ("GET", "/v1/jobs/{id}"): Operation(
        "show_job", "A job, at once or after its next change", {200: shapes.Job}, (_CONFLICT,), _WAIT
    ),
    ("DELETE", "/v1/jobs/{id}"): Operation(
        "kill_job", "End a job; 200: it had ended", {202: shapes.Job, 200: shapes.Job}, (_CONFLICT,)
    ),
    ("GET", "/v1/arrays/{id}"): Operation(
        "show_array",
        "A job array, or some of its tasks: NAME.7, NAME.3-7",
        {200: Array},
        query=(_number(asked.MAX_LISTED, "so many jobs at most"),),
    ),
    ("PATCH", "/v1/jobs/{id}"): Operation(
        "resize_job",
        "Change the shares of a running job; 202: its host has not answered, or it starts again",
        {200: shapes.Job, 202: shapes.Job},
        (_CONFLICT,),
        _RESIZE,
        body=bodies.ResizeRequest,
        example={"gpu_memory_mib": 20480, "gpu_compute_pct": 30},
    ),
    ("DELETE", "/v1/jobs/{id}/resize"): Operation(
        "withdraw_resize",
        "Let a job keep the shares that it had before a resize that its host has not answered; 202: it has not yet",
        {200: shapes.Job, 202: shapes.Job},
        (_CONFLICT,),
        _WITHDRAW,
    ),
    ("POST", "/v1/jobs/{id}/checkpoint"): Operation(
        "tell_checkpoint",
        "Say of a job that runs that its work is kept up to now",
        {200: shapes.Job},
        (_CONFLICT,),
    ),
    ("PUT", "/v1/jobs/{id}/keep"): Operation(
        "keep_job",
        "Keep a job from being ended for GPUs that do nothing, for as long as its queue or class lets it be kept",
        {200: shapes.Job},
        (_CONFLICT,),
        body=bodies.KeepRequest,
        example={"for_s": 7200},
    ),
    ("DELETE", "/v1/jobs/{id}/keep"): Operation(
        "withdraw_keep",
        "Keep a job no longer: its idle time counts from now",
        {200: shapes.Job},
        (_CONFLICT,),
    ),
    **channel.OPERATIONS,
    **command.OPERATIONS,
    **events.OPERATIONS,
    **hooks.OPERATIONS,
    **bookings.OPERATIONS,
    **past.OPERATIONS,
    ("GET", "/v1/jobs/{id}/tasks"): Operation(
        "list_job_tasks", "A job's launches, oldest first", {200: shapes.Tasks}, (_CONFLICT,)
    ),
    ("GET", "/v1/jobs/{id}/logs"): Operation(
        "read_job_logs", "A piece of what a job prints", {200: shapes.Logs}, (_CONFLICT,), _LOGS
    ),
    ("GET", "/v1/why/{id}"): Operation("explain_job", "Why a job waits", {200: shapes.Why}, (_CONFLICT,)),
    ("GET", "/v1/queue"): Operation(
        "show_queue",
        "The first pending jobs in the order in which they are tried, and the queues",
        {200: line.Queue},
        query=(_number(asked.MAX_QUEUED, "so many jobs at most"),),
    ),
    ("POST", "/v1/plan/jobs"): Operation(
        "plan_job",
        "What would become of a job that is submitted now; nothing is changed",
        {200: shapes.JobPlan},
        (429,),
        body=bodies.JobRequest,
        examples=_JOBS,
    ),
    ("POST", "/v1/plan/defrag"): Operation(
        "plan_for_request",
        "The fewest moves that make room for a request; nothing is changed",
        {200: shapes.Plan},
        body=bodies.PlanRequest,
        example={"gpus": 8},
    ),
    ("GET", "/v1/plan/defrag/{id}"): Operation(
        "plan_for_job",
        "The fewest moves that make room for a job that waits",
        {200: shapes.Plan},
        (_CONFLICT,),
    ),
    ("GET", "/v1/gpus/{id}"): Operation(
        "show_gpu", "A GPU and its history", {200: shapes.GpuWithHistory}, (_CONFLICT,)
    ),
    ("GET", "/v1/use"): Operation(
        "show_cluster_use", "How all GPUs were used in the last day", {200: ClusterUse}
    ),
    ("GET", "/v1/gpus/{id}/use"): Operation(
        "show_gpu_use", "How a GPU was used of late", {200: UseOverTime}, (_CONFLICT,)
    ),
    ("GET", "/v1/jobs/{id}/use"): Operation(
        "show_job_use", "How a job used its GPUs of late", {200: UseOverTime}, (_CONFLICT,)
    ),
    ("POST", "/v1/gpus/{id}/drain"): Operation(
        "drain_gpu",
        "Take a GPU out",
        {200: shapes.Gpus},
        (_CONFLICT,),
        body=bodies.DrainRequest,
        example=_DRAIN,
    ),
    ("DELETE", "/v1/gpus/{id}/drain"): Operation(
        "undrain_gpu", "Give a GPU back", {200: shapes.Gpus}, (_CONFLICT,), (_BY,)
    ),
    ("POST", "/v1/gpus/{id}/reset"): Operation(
        "reset_gpu",
        "Have a GPU reset by its node",
        {202: shapes.GpuWithHistory},
        (_CONFLICT,),
        body=bodies.ResetRequest,
        example={"reason": "XID 79", "by": "ann"},
    ),
    ("GET", "/v1/nodes/{id}"): Operation(
        "show_node", "The agents of a host", {200: shapes.Nodes}, (_CONFLICT,)
    ),
    ("GET", "/v1/nodes/{id}/use"): Operation(
        "show_node_use",
        "How those GPUs of a host were used of late of which it says how busy they are now",
        {200: UseOverTime},
        (_CONFLICT,),
    ),
    ("POST", "/v1/nodes/{id}/drain"): Operation(
        "drain_node", "Take a node out", {200: shapes.Nodes}, body=bodies.DrainRequest, example=_DRAIN
    ),
    ("DELETE", "/v1/nodes/{id}/drain"): Operation(
        "undrain_node", "Give a node back", {200: shapes.Nodes}, (_CONFLICT,), (_BY,)
    ),
    ("GET", "/v1/services"): Operation(
        "list_services",
        "Services, or the configuration of a load balancer that serves them",
        {200: (service_shapes.Services, dict[str, Any], _PLAIN)},
        query=(_FORMAT, _GROUPS, _number(services.HTTP_PORT, "where HAProxy listens for virtual hosts")),
    ),
    ("GET", "/v1/services/{name}"): Operation(
        "show_service", "A service", {200: (service_shapes.Service, dict[str, Any], _PLAIN)}, query=(_FORMAT,)
    ),
    ("PUT", "/v1/services/{name}"): Operation(
        "put_service",
        "Make a service, or change it as a whole",
        {200: service_shapes.Service},
        body=bodies.ServiceRequest,
        example={"apps": {"/shop/v1": 90, "/shop/v2": 10}},
    ),
    ("DELETE", "/v1/services/{name}"): Operation(
        "delete_service", "End a service", {200: service_shapes.Service}
    ),
    ("GET", "/v1/tasks"): Operation(
        "list_tasks", "Launches that have not ended, and node monitors", {200: shapes.Tasks}, query=(_NODE,)
    ),
    ("GET", "/v1/tasks/unknown"): Operation(
        "list_unknown_tasks",
        "Tasks that run and that the scheduler's state does not know",
        {200: shapes.UnknownTasks},
    ),
    ("DELETE", "/v1/tasks/unknown/{id}"): Operation(
        "kill_unknown_task", "End one; what is held", {202: shapes.UnknownTasks}
    ),
    ("POST", "/v1/tasks/unknown/{id}/adopt"): Operation(
        "adopt_unknown_task", "Give one to its job; what is left", {200: shapes.UnknownTasks}, (_CONFLICT,)
    ),
    ("GET", "/v1/audit"): Operation(
        "list_audit",
        "Changes and refusals on record, the newest first",
        {200: audit.Audit},
        (404,),
        query=_RECORDS,
    ),
    ("GET", "/v1/jobs/{id}/changes"): Operation(
        "list_job_changes", "Who changed a job last", {200: audit.ChangesMade}, (_CONFLICT,), query=_CHANGES
    ),
    ("GET", "/v1/gpus/{id}/changes"): Operation(
        "list_gpu_changes", "Who changed a GPU last", {200: audit.ChangesMade}, (_CONFLICT,), query=_CHANGES
    ),
    **access.OPERATIONS,
    **queues.OPERATIONS,
    **queue_shares.OPERATIONS,
    **cards.OPERATIONS,
    **lists.OPERATIONS,
    **ways.OPERATIONS,
    **sessions.OPERATIONS,
    **templates.OPERATIONS,
    **uploads.OPERATIONS,
    **volumes.OPERATIONS,
    **usage.OPERATIONS,
    **upgrade.OPERATIONS,
    ("GET", "/v1/status"): Operation("show_status", "The scheduler and a summary", {200: shapes.Status}),
    ("GET", "/v1/leader"): Operation(
        "show_leader", "Which of the schedulers leads, and how far the others are", {200: Leadership}
    ),
    ("GET", "/v1/health"): Operation(
        "check_health",
        "Whether the master is connected and changes can be saved: 503 while it is not so",
        {200: shapes.Health, 503: (shapes.Health, shapes.Error)},
    ),
    ("GET", "/v1/openapi.json"): Operation("show_openapi", "This document", {200: dict[str, Any]}),
    ("GET", "/v1/sd"): Operation(
        "list_targets",
        "What Prometheus may scrape: this scheduler, and each port of each task of an app that serves",
        {200: list[shapes.TargetGroup]},
    ),
    ("GET", "/metrics"): Operation(
        "show_metrics",
        "Metrics: for Prometheus if Accept names text/plain, else as Marathon's JSON",
        {200: (dict[str, Any], prometheus.CONTENT_TYPE)},
    ),
}
_ID: Final = {
    "jobs": "a job's id, the start of one, or the id of a launch of it (not to end it)",
    "gpus": "a GPU's UUID, the start of one, or HOST:INDEX (of HOST: its first parts, if unique)",
    "nodes": "a host name, its first parts if they are unique, or an agent's id",
    "services": "a service's name",
    "webhooks": "a webhook's name",
    "bookings": "a booking's id, or the name of one that has not ended",
    "access": "the number of a version",
    "queue-versions": "the number of a version",
    "queue-shares": "a queue's path, with its slashes",
    "queue-why": "a queue's path, with its slashes",
    "queues": "a queue's path, with its slashes",
    "tokens": "a token's id",
    "tasks": "a task's id",
    "templates": "a template's name",
    "volumes": "a volume's name",
    "uploads": "the SHA-256 of an archive, in hexadecimal digits",
}
_REFUSALS: Final = {
    400: f"The body is no JSON object, or the query has more than {MAX_QUERY} fields",
    401: "It needs a name that is proved, or what it shows is no proof; WWW-Authenticate says what would be",
    403: "Who asks may not do that; the message names the right that is missing. Or the request comes through a web "
    "page of another origin, or under another host's name",
    404: "There is none of that id",
    408: f"The body did not come within {BODY_S:g} s",
    409: "As things stand it cannot be done, or the id is the start of several",
    413: f"The body is larger than {asked.MAX_BODY} bytes",
    414: f"The path and the query have {MAX_TARGET} bytes or more",
    415: "The body is not declared as what it has to be, mostly application/json",
    422: "The request is not valid; `problems` says all that is wrong",
    429: "A limit of who asks, the user or the queue is reached, or there were too many wrong proofs; see Retry-After",
    500: "A defect; the scheduler's log has it",
    503: "The scheduler is stopping, or an agent does not answer",
    507: "The state cannot be written, as on a full disk: no change is taken",
}


@cache
def document() -> Schema:
    """The whole document, OpenAPI 3.1: not to be changed by who gets it."""
    schemas = Schemas("#/components/schemas/{name}")
    paths: dict[str, Schema] = {}
    for (verb, path), operation in OPERATIONS.items():
        paths.setdefault(path, _path_parameters(path))[verb.lower()] = _operation(
            verb, operation, path, schemas
        )
    for name, schema in schemas.components.items():
        if name.endswith("Request"):
            schema["additionalProperties"] = False
    schemas.components["JobRequest"]["anyOf"] = _WHAT_RUNS
    error = {_JSON: {"schema": schemas.of(shapes.Error), "example": _ERROR}}
    refusals = {str(status): {"description": about, "content": error} for status, about in _REFUSALS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mesos_gpu", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"responses": refusals, "schemas": dict(sorted(schemas.components.items()))},
    }


def text() -> str:
    """The text of docs/reference/openapi.json."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _path_parameters(path: str) -> Schema:
    names = _NAMES.findall(path)
    if not names:
        return {}
    about = _ID.get(path.split("/")[2], _ID["jobs"])
    schema = {"type": "string", "minLength": 1}
    return {
        "parameters": [
            {"name": name, "in": "path", "required": True, "description": about, "schema": schema}
            for name in names
        ]
    }


def _operation(verb: str, operation: Operation, path: str, schemas: Schemas) -> Schema:
    made: Schema = {"operationId": operation.id, "summary": operation.summary}
    if operation.query:
        made["parameters"] = list(operation.query)
    if operation.body is not None:
        content: Schema = {"schema": schemas.of(operation.body)}
        if operation.examples:
            content["examples"] = {name: {"value": value} for name, value in operation.examples.items()}
        else:
            content["example"] = operation.example
        made["requestBody"] = {"required": True, "content": {_JSON: content}}
    elif operation.raw_body:
        made["requestBody"] = {"required": True, "content": {_BYTES: {"schema": {}}}}
    refused = {
        status: {"$ref": f"#/components/responses/{status}"} for status in _refusals(verb, operation, path)
    }
    answers = {status: _answer(status, shape, schemas) for status, shape in operation.answers.items()}
    made["responses"] = {str(status): each for status, each in sorted({**refused, **answers}.items())}
    return made


def _refusals(verb: str, operation: Operation, path: str) -> Iterator[int]:
    yield from (*operation.refusals, 400, 401, 403, 429, 500, 503)
    if verb != "GET" and not path.startswith(READS):
        yield 507
    if "{" in path:
        yield 404
    if operation.body is not None:
        yield from (408, 413, 415, 422)
    if operation.query:
        yield from (414, 422)


def _answer(status: int, shape: Any, schemas: Schemas) -> Schema:
    among = shape if isinstance(shape, tuple) else (shape,)
    content: Schema = {kind: {"schema": _TEXT} for kind in among if isinstance(kind, str)}
    objects = [schemas.of(each) for each in among if not isinstance(each, str)]
    if objects:
        content[_JSON] = {"schema": objects[0] if len(objects) == 1 else {"anyOf": objects}}
    made: Schema = {"description": HTTPStatus(status).phrase, "content": content}
    if status == HTTPStatus.CREATED:
        made["headers"] = {"Location": {"description": "where it is shown", "schema": {"type": "string"}}}
    return made


if __name__ == "__main__":
    print(text(), end="")
