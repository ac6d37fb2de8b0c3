"""The OpenAPI document of /v1: operations from here and from api/spec, schemas from the types there.

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
A field that does not apply is null, never absent. Later releases may add fields to answers.
Bodies are JSON of at most {asked.MAX_BODY} bytes.
If authentication is on, a request needs credentials: a token as `Authorization: Bearer`, a name and a password as HTTP
basic, a certificate, or a session's cookie. Requests that a page of another origin makes a browser send are refused.

The scheduler also has Marathon's interface, below /v2."""


def _number(number: asked.Number, about: str) -> Schema:
    """Return the query parameter of a number."""
    kind = "integer" if number.whole else "number"
    schema = {"type": kind, "minimum": number.least, "maximum": number.most, "default": number.default}
    return in_query(number.name, schema, about)


_STATES: Final = {"enum": [ACTIVE, *(state.value for state in JobState)]}
_BY: Final = in_query(
    "by",
    {"type": "string", "maxLength": MAX_BY, "pattern": "^[^\\x00\\n]*$"},
    "name of the person or program that sends the request",
)
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
    By.USER: "; matches unproved users, too",
    By.QUEUE: "; matches queues below it, too",
    By.APP: "; the first slash may be left out",
    By.NODE: "; the first part of the host name is enough",
}
_NODE: Final = in_query(
    "node", MANY_PATTERNS, f"tasks on one of these nodes; * matches anything{_WIDER[By.NODE]}"
)
_FILTERS: Final = (
    in_query(
        "state",
        {"type": "array", "items": {"type": "string", **_STATES}},
        "jobs in one of these states; active: not ended",
    ),
    in_query("name", {"type": "string"}, "part of the job's name"),
    in_query(
        "label",
        MANY_PATTERNS,
        "a key, or key=value, where * in the value matches anything; jobs must match all of them",
    ),
    *(
        in_query(
            key,
            MANY_PATTERNS,
            f"one of these patterns matches the {by}; * matches anything{_WIDER.get(by, '')}",
        )
        for key, by in PATTERNS.items()
    ),
    in_query(
        "order",
        {"type": "string", "enum": [*Order], "default": Order.NEWEST},
        "activity: running, then waiting, then ended jobs, the newest first in each group",
    ),
    in_query("search", {"type": "string"}, "part of the job's id, name, owner, queue or host"),
    in_query(
        asked.FOLD_ARRAYS.name, {"type": "boolean", "default": False}, "list arrays instead of their tasks"
    ),
    in_query(asked.NO_INSTANCES.name, {"type": "boolean", "default": False}, "leave out instances of apps"),
    _number(asked.SKIP, "number of jobs to skip at the beginning"),
    _number(asked.MAX_LISTED, "maximum number of jobs"),
)
_WAIT: Final = (
    _number(asked.AFTER_VERSION, "wait until the job's version is greater than this"),
    _number(asked.WAIT_S, "maximum time to wait, in seconds"),
    in_query(
        asked.SHOW_ENV.name,
        {"type": "boolean", "default": False},
        "include values of the environment; only for requests from the scheduler's own host",
    ),
)
_WITHDRAW: Final = (
    _number(asked.ANSWER_S, "maximum time to wait for the answer of the job's host, in seconds"),
)
_RESIZE: Final = (
    in_query(
        asked.RESTART.name,
        {"type": "boolean", "default": False},
        "restart the job if the shares cannot be changed while it runs",
    ),
    *_WITHDRAW,
)
_LOGS: Final = (
    in_query(
        "stream",
        {"type": "string", "enum": ["stdout", "stderr"], "default": "stdout"},
        "output stream to read",
    ),
    _number(asked.OFFSET, "first byte to read; -N for the last N bytes"),
    _number(asked.LENGTH, "maximum number of bytes; at least one whole character is returned"),
    in_query(
        "encoding",
        {"type": "string", "enum": [*ENCODINGS], "default": ENCODINGS[0]},
        "encoding of data; base64: unchanged bytes",
    ),
    in_query("task_id", {"type": "string"}, "task whose output to read; default: that of the latest launch"),
    in_query(
        asked.TIMES.name,
        {"type": "boolean", "default": False},
        "include the times at which the output was written",
    ),
    in_query(
        asked.SINCE.name,
        {"type": "number", "minimum": asked.SINCE.least, "maximum": asked.SINCE.most},
        "begin with output written after this time, in seconds since the epoch, or at offset if that is later",
    ),
)
_LONG: Final = {"type": "string", "maxLength": records.MAX_LENGTH}
_RECORDS: Final = (
    in_query("who", _LONG, "name of the caller; a * at the end matches any rest"),
    in_query("what", _LONG, "a right, or part of method and route"),
    in_query(
        "on",
        _LONG,
        "resource as kind:id, such as job:train-1a2b3c4d, or its id; a * at the end matches any rest",
    ),
    in_query(
        "result", {"type": "string", "enum": [result.value for result in Result]}, "outcome of the request"
    ),
    _number(asked.SINCE, "records from this time on, in seconds since the epoch"),
    _number(asked.UNTIL, "records before this time, in seconds since the epoch"),
    _number(records.MAX_RECORDS, "maximum number of records"),
    in_query("cursor", {"type": "string"}, "cursor of the previous answer"),
)
_CHANGES: Final = (_number(records.MAX_CHANGES, "maximum number of changes"),)
_CONFLICT: Final = 409
_PLAIN: Final = "text/plain; charset=utf-8"
_FORMAT: Final = in_query(
    "format",
    {"type": "string", "enum": [*services.FORMATS], "default": services.JSON},
    "format of the answer",
)
_GROUPS: Final = in_query(
    "group",
    {"type": "array", "items": {"type": "string"}},
    "include services that labels of apps define for these groups of load balancers",
)
_TEXT: Final = {"type": "string"}
_NONE: Final = {"type": "null"}
_WHAT_RUNS: Final = [
    {"required": ["command"], "properties": {"command": _TEXT, "argv": _NONE}},
    {"required": ["argv"], "properties": {"argv": {"type": "array"}, "command": _NONE}},
    {"required": ["image"], "properties": {"image": _TEXT, "argv": _NONE, "command": _NONE}},
]

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/jobs"): Operation("list_jobs", "List jobs", {200: shapes.Jobs}, query=_FILTERS),
    ("POST", "/v1/jobs"): Operation(
        "submit_job", "Queue a job", {201: SubmittedJob}, (429,), body=bodies.JobRequest, examples=_JOBS
    ),
    ("GET", "/v1/jobs/{id}"): Operation(
        "show_job", "Show a job, at once or after its next change", {200: shapes.Job}, (_CONFLICT,), _WAIT
    ),
    ("DELETE", "/v1/jobs/{id}"): Operation(
        "kill_job", "End a job; 200: it had ended already", {202: shapes.Job, 200: shapes.Job}, (_CONFLICT,)
    ),
    ("GET", "/v1/arrays/{id}"): Operation(
        "show_array",
        "Show a job array, or some of its tasks: NAME.7, NAME.3-7",
        {200: Array},
        query=(_number(asked.MAX_LISTED, "maximum number of jobs"),),
    ),
    ("PATCH", "/v1/jobs/{id}"): Operation(
        "resize_job",
        "Change the shares of a running job; 202: its host has not answered yet, or the job restarts",
        {200: shapes.Job, 202: shapes.Job},
        (_CONFLICT,),
        _RESIZE,
        body=bodies.ResizeRequest,
        example={"gpu_memory_mib": 20480, "gpu_compute_pct": 30},
    ),
    ("DELETE", "/v1/jobs/{id}/resize"): Operation(
        "withdraw_resize",
        "Withdraw a resize that the job's host has not answered; 202: the host has not confirmed this yet",
        {200: shapes.Job, 202: shapes.Job},
        (_CONFLICT,),
        _WITHDRAW,
    ),
    ("POST", "/v1/jobs/{id}/checkpoint"): Operation(
        "tell_checkpoint",
        "Report that the work of a running job is saved up to now",
        {200: shapes.Job},
        (_CONFLICT,),
    ),
    ("PUT", "/v1/jobs/{id}/keep"): Operation(
        "keep_job",
        "Protect a job from being ended for idle GPUs, for as long as its queue or class permits",
        {200: shapes.Job},
        (_CONFLICT,),
        body=bodies.KeepRequest,
        example={"for_s": 7200},
    ),
    ("DELETE", "/v1/jobs/{id}/keep"): Operation(
        "withdraw_keep",
        "End a job's protection from being ended for idle GPUs; its idle time counts from now",
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
        "list_job_tasks", "List a job's launches, oldest first", {200: shapes.Tasks}, (_CONFLICT,)
    ),
    ("GET", "/v1/jobs/{id}/logs"): Operation(
        "read_job_logs", "Read a piece of a job's output", {200: shapes.Logs}, (_CONFLICT,), _LOGS
    ),
    ("GET", "/v1/why/{id}"): Operation(
        "explain_job", "Explain why a job waits", {200: shapes.Why}, (_CONFLICT,)
    ),
    ("GET", "/v1/queue"): Operation(
        "show_queue",
        "Show the first pending jobs in queue order, and the queues",
        {200: line.Queue},
        query=(_number(asked.MAX_QUEUED, "maximum number of jobs"),),
    ),
    ("POST", "/v1/plan/jobs"): Operation(
        "plan_job",
        "Predict what would happen to a job that is submitted now; nothing is changed",
        {200: shapes.JobPlan},
        (429,),
        body=bodies.JobRequest,
        examples=_JOBS,
    ),
    ("POST", "/v1/plan/defrag"): Operation(
        "plan_for_request",
        "Plan the fewest moves of jobs that make room for a request; nothing is changed",
        {200: shapes.Plan},
        body=bodies.PlanRequest,
        example={"gpus": 8},
    ),
    ("GET", "/v1/plan/defrag/{id}"): Operation(
        "plan_for_job",
        "Plan the fewest moves of jobs that make room for a waiting job; nothing is changed",
        {200: shapes.Plan},
        (_CONFLICT,),
    ),
    ("GET", "/v1/gpus/{id}"): Operation(
        "show_gpu", "Show a GPU and its history", {200: shapes.GpuWithHistory}, (_CONFLICT,)
    ),
    ("GET", "/v1/use"): Operation(
        "show_cluster_use", "Show the utilization of all GPUs in the last day", {200: ClusterUse}
    ),
    ("GET", "/v1/gpus/{id}/use"): Operation(
        "show_gpu_use", "Show the recent utilization of a GPU", {200: UseOverTime}, (_CONFLICT,)
    ),
    ("GET", "/v1/jobs/{id}/use"): Operation(
        "show_job_use", "Show the recent utilization of a job's GPUs", {200: UseOverTime}, (_CONFLICT,)
    ),
    ("POST", "/v1/gpus/{id}/drain"): Operation(
        "drain_gpu",
        "Drain a GPU",
        {200: shapes.Gpus},
        (_CONFLICT,),
        body=bodies.DrainRequest,
        example=_DRAIN,
    ),
    ("DELETE", "/v1/gpus/{id}/drain"): Operation(
        "undrain_gpu", "End the drain of a GPU", {200: shapes.Gpus}, (_CONFLICT,), (_BY,)
    ),
    ("POST", "/v1/gpus/{id}/reset"): Operation(
        "reset_gpu",
        "Let a GPU's node reset it",
        {202: shapes.GpuWithHistory},
        (_CONFLICT,),
        body=bodies.ResetRequest,
        example={"reason": "XID 79", "by": "ann"},
    ),
    ("GET", "/v1/nodes/{id}"): Operation(
        "show_node", "Show the agents of a host", {200: shapes.Nodes}, (_CONFLICT,)
    ),
    ("GET", "/v1/nodes/{id}/use"): Operation(
        "show_node_use",
        "Show the recent utilization of a host's GPUs, as far as the host reports it now",
        {200: UseOverTime},
        (_CONFLICT,),
    ),
    ("POST", "/v1/nodes/{id}/drain"): Operation(
        "drain_node", "Drain a node", {200: shapes.Nodes}, body=bodies.DrainRequest, example=_DRAIN
    ),
    ("DELETE", "/v1/nodes/{id}/drain"): Operation(
        "undrain_node", "End the drain of a node", {200: shapes.Nodes}, (_CONFLICT,), (_BY,)
    ),
    ("GET", "/v1/services"): Operation(
        "list_services",
        "List services, or export them as the configuration of a load balancer",
        {200: (service_shapes.Services, dict[str, Any], _PLAIN)},
        query=(_FORMAT, _GROUPS, _number(services.HTTP_PORT, "port where HAProxy listens for virtual hosts")),
    ),
    ("GET", "/v1/services/{name}"): Operation(
        "show_service",
        "Show a service",
        {200: (service_shapes.Service, dict[str, Any], _PLAIN)},
        query=(_FORMAT,),
    ),
    ("PUT", "/v1/services/{name}"): Operation(
        "put_service",
        "Create or replace a service",
        {200: service_shapes.Service},
        body=bodies.ServiceRequest,
        example={"apps": {"/shop/v1": 90, "/shop/v2": 10}},
    ),
    ("DELETE", "/v1/services/{name}"): Operation(
        "delete_service", "Delete a service", {200: service_shapes.Service}
    ),
    ("GET", "/v1/tasks"): Operation(
        "list_tasks",
        "List launches that have not ended, and node monitors",
        {200: shapes.Tasks},
        query=(_NODE,),
    ),
    ("GET", "/v1/tasks/unknown"): Operation(
        "list_unknown_tasks",
        "List running tasks that the scheduler's state does not know",
        {200: shapes.UnknownTasks},
    ),
    ("DELETE", "/v1/tasks/unknown/{id}"): Operation(
        "kill_unknown_task", "End an unknown task; returns the remaining ones", {202: shapes.UnknownTasks}
    ),
    ("POST", "/v1/tasks/unknown/{id}/adopt"): Operation(
        "adopt_unknown_task",
        "Assign an unknown task to its job; returns the remaining ones",
        {200: shapes.UnknownTasks},
        (_CONFLICT,),
    ),
    ("GET", "/v1/audit"): Operation(
        "list_audit",
        "Search recorded changes and refusals, the newest first",
        {200: audit.Audit},
        (404,),
        query=_RECORDS,
    ),
    ("GET", "/v1/jobs/{id}/changes"): Operation(
        "list_job_changes",
        "List the latest changes of a job and their callers",
        {200: audit.ChangesMade},
        (_CONFLICT,),
        query=_CHANGES,
    ),
    ("GET", "/v1/gpus/{id}/changes"): Operation(
        "list_gpu_changes",
        "List the latest changes of a GPU and their callers",
        {200: audit.ChangesMade},
        (_CONFLICT,),
        query=_CHANGES,
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
    ("GET", "/v1/status"): Operation(
        "show_status", "Show the scheduler and a summary of the cluster", {200: shapes.Status}
    ),
    ("GET", "/v1/leader"): Operation(
        "show_leader", "Show which scheduler leads, and how up to date the others are", {200: Leadership}
    ),
    ("GET", "/v1/health"): Operation(
        "check_health",
        "Check whether the master is connected and changes can be saved; 503 if not",
        {200: shapes.Health, 503: (shapes.Health, shapes.Error)},
    ),
    ("GET", "/v1/openapi.json"): Operation("show_openapi", "Show this document", {200: dict[str, Any]}),
    ("GET", "/v1/sd"): Operation(
        "list_targets",
        "List targets for Prometheus: this scheduler, and each port of each serving task of an app",
        {200: list[shapes.TargetGroup]},
    ),
    ("GET", "/metrics"): Operation(
        "show_metrics",
        "Show metrics: for Prometheus if Accept names text/plain, else as Marathon's JSON",
        {200: (dict[str, Any], prometheus.CONTENT_TYPE)},
    ),
}
_ID: Final = {
    "jobs": "a job's id, the start of an id, a name, or the id of a launch (not to kill the job)",
    "gpus": "a GPU's UUID, the start of a UUID, or HOST:INDEX (the first parts of HOST are enough if they are unique)",
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
    400: f"The body is not a JSON object, or the query has more than {MAX_QUERY} fields",
    401: "Authentication is needed, or the credentials are wrong; WWW-Authenticate lists accepted kinds",
    403: "The caller may not do this; the message names the missing right. Or the request comes from a web page of "
    "another origin, or names another host",
    404: "There is no such resource",
    408: f"The body did not come within {BODY_S:g} s",
    409: "The current state does not permit it, or the id is ambiguous",
    413: f"The body is larger than {asked.MAX_BODY} bytes",
    414: f"The path and the query have {MAX_TARGET} bytes or more",
    415: "Content-Type is not the required one, mostly application/json",
    422: "The request is not valid; `problems` lists all faults",
    429: "A limit of the caller, user or queue is reached, or credentials were wrong too often; see Retry-After",
    500: "Internal error; the scheduler's log has details",
    503: "The scheduler is stopping, or an agent does not answer",
    507: "The state cannot be saved, as on a full disk; no change is accepted",
}


@cache
def document() -> Schema:
    """Return the whole document, OpenAPI 3.1; callers must not change it."""
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
    """Return the text of docs/reference/openapi.json."""
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
    """Return the document's object for an operation."""
    operation_schema: Schema = {"operationId": operation.id, "summary": operation.summary}
    if operation.query:
        operation_schema["parameters"] = list(operation.query)
    if operation.body is not None:
        content: Schema = {"schema": schemas.of(operation.body)}
        if operation.examples:
            content["examples"] = {name: {"value": value} for name, value in operation.examples.items()}
        else:
            content["example"] = operation.example
        operation_schema["requestBody"] = {"required": True, "content": {_JSON: content}}
    elif operation.raw_body:
        operation_schema["requestBody"] = {"required": True, "content": {_BYTES: {"schema": {}}}}
    refusals = {
        status: {"$ref": f"#/components/responses/{status}"} for status in _refusals(verb, operation, path)
    }
    answers = {status: _answer(status, shape, schemas) for status, shape in operation.answers.items()}
    operation_schema["responses"] = {
        str(status): answer for status, answer in sorted({**refusals, **answers}.items())
    }
    return operation_schema


def _refusals(verb: str, operation: Operation, path: str) -> Iterator[int]:
    """Yield the statuses with which an operation may refuse a request."""
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
    """Return the document's object for an answer."""
    among = shape if isinstance(shape, tuple) else (shape,)
    content: Schema = {kind: {"schema": _TEXT} for kind in among if isinstance(kind, str)}
    objects = [schemas.of(item) for item in among if not isinstance(item, str)]
    if objects:
        content[_JSON] = {"schema": objects[0] if len(objects) == 1 else {"anyOf": objects}}
    answer: Schema = {"description": HTTPStatus(status).phrase, "content": content}
    if status == HTTPStatus.CREATED:
        answer["headers"] = {
            "Location": {"description": "path of the new resource", "schema": {"type": "string"}}
        }
    return answer


if __name__ == "__main__":
    print(text(), end="")
