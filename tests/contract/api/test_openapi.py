"""The OpenAPI document of /v1: that it is the interface, the whole of it, and that the interface keeps to it."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from enum import Enum
from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.case import Case
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from starlette.routing import Route

from mesos_gpu.adapters.hooks.receivers import receivers
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api import openapi
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.healthcheck import HealthCheck as Check
from mesos_gpu.model.tasks.hook import Hook
from mesos_gpu.wire.checking import object_of
from mesos_gpu.wire.job_fields import ARTIFACT_KNOWN, CHECK_KNOWN, KNOWN
from mesos_gpu.wire.jobs import spec_from_mapping
from tests.contract.rig import Rig
from tests.doubles.builders import gpu

ROOT = Path(__file__).parents[3]
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
]
KINDS: Final = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
LONG_POLLS = (("GET", "/v1/jobs/{id}"), ("GET", "/v1/events"))
MAX_TIMEOUT_S: Final = 60.0  # of both, by the document
NOT_FOR: Final = {("GET", "/v1/jobs/{id}/logs"): (not_a_server_error,)}  # 503: there is no agent
OPERATIONS: Final = sorted(openapi.OPERATIONS)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    hooks = HookStore(tmp_path_factory.mktemp("hooks") / "hooks")
    hooks.put(Hook("there", "https://hooks.example.com/"), b"secret")
    rig = Rig(
        uploads=UploadStore(tmp_path_factory.mktemp("uploads")),
        hooks=hooks,
        sender=Sender(receivers(["127.0.0.1"])),  # a test of the hook gets nowhere, at once
    )
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    rig.submit(name="one", gpus=1)
    rig.submit(name="two", gpus=2)
    for verb, path, body in (
        ("PUT", "/v2/apps/web", {"cmd": "serve", "instances": 0}),
        ("PUT", "/v1/services/web", {"apps": {"/web": 1}}),
        ("PUT", "/v1/access", {"version": 0, "bindings": [{"names": ["ann"], "roles": ["admin"]}]}),
        ("POST", "/v1/tokens", {"name": "ann"}),
        ("PUT", "/v1/queues", {"version": 0, "queues": {"research": {}, "research/vision": {"weight": 2}}}),
    ):
        assert rig.call(verb, path, json=body).ok
    for operation in (("GET", "/v1/jobs"), ("POST", "/v1/jobs/{id}/exec")):
        keep(rig, operation, 2)  # what generators of requests do once takes longer than an operation
    yield rig
    rig.close()
    hooks.close()


def strict() -> dict[str, Any]:
    """The document, with answers that have what it says and no more."""
    document = deepcopy(openapi.document())
    for schema in document["components"]["schemas"].values():
        schema["additionalProperties"] = False
    return document


CONFIG: Final = SchemathesisConfig()
for each in (
    CONFIG.projects.default.checks.negative_data_rejection,
    CONFIG.projects.default.checks.positive_data_acceptance,
):
    each.expected_statuses = [
        *each.expected_statuses,
        "413",
        "414",
    ]  # a document cannot say how long a whole body or query may be
SCHEMA: Final = schemathesis.openapi.from_dict(strict(), config=CONFIG)


def test_openapi_document_is_committed() -> None:
    said = (ROOT / "docs/reference/openapi.json").read_text(encoding="utf-8")
    assert said == openapi.text(), "run: make docs"


def test_openapi_document_is_served(rig: Rig) -> None:
    assert rig.call("GET", "/v1/openapi.json").json() == openapi.document()


def test_openapi_document_has_every_route_and_no_other(rig: Rig) -> None:
    served = {
        (verb, route.path_format)
        for route in rig.app.routes
        if isinstance(route, Route) and (route.path.startswith("/v1/") or route.path == "/metrics")
        for verb in route.methods or ()
        if verb != "HEAD"
    }
    assert served == set(openapi.OPERATIONS)


def test_openapi_requests_have_the_known_fields() -> None:
    shapes = openapi.document()["components"]["schemas"]
    for name, known in (("Job", KNOWN), ("HealthCheck", CHECK_KNOWN), ("Artifact", ARTIFACT_KNOWN)):
        assert set(shapes[f"{name}Request"]["properties"]) == set(known)


def test_openapi_defaults_are_those_of_the_parsers() -> None:
    shapes, spec = openapi.document()["components"]["schemas"], spec_from_mapping({"command": "true"})
    for name, parsed in (("Job", spec), ("HealthCheck", Check()), ("Artifact", Artifact("/a"))):
        for key, schema in shapes[f"{name}Request"]["properties"].items():
            own = getattr(parsed, key, None)
            if "default" in schema:
                assert schema["default"] == (own.value if isinstance(own, Enum) else own), (name, key)


def test_openapi_examples_keep_to_the_document(rig: Rig) -> None:
    for (verb, path), operation in openapi.OPERATIONS.items():
        if operation.body is not None:
            schema = {"$ref": f"#/components/schemas/{operation.body.__name__}", **openapi.document()}
            for example in operation.examples.values() or [operation.example]:
                Draft202012Validator(schema).validate(example)
                answer = rig.call(verb, path.format(id="none", name="none", queue="none"), json=example)
                # an example before may have drained the only one, or booked it
                excuses = "there is no app", "healthy GPU", "it leaves too little for bookings"
                assert answer.status_code != 422 or any(each in answer.text for each in excuses)


def test_a_query_of_too_many_fields_is_refused_as_it_says(rig: Rig) -> None:
    answer = rig.call("GET", "/v1/jobs?" + "&".join(["label=a"] * 101))
    assert answer.status_code == 400
    paths = openapi.document()["paths"]
    assert all("400" in paths[path][verb.lower()]["responses"] for verb, path in OPERATIONS)


JOB: Final = Draft202012Validator({"$ref": "#/components/schemas/JobRequest", **openapi.document()})
ODD: Final = (
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([2**31, 2**31 + 1, 1e5, 1e9, 0.5, 1e300, 65535])
    | st.sampled_from(["", " ", "a", "A", "a\0", "8.0", "535", "restart", "mesos", "spread", "a:5000/b:c", "/x:/y"])
)  # fmt: skip
VALUES: Final = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "=", "uri", *CHECK_KNOWN]), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_openapi_disallowed_job_is_refused(count: int) -> None:
    given_fields = {"command": st.just("true"), "image": st.just("x"), "gpus": st.just(1)}

    @given(
        st.fixed_dictionaries({}, optional=given_fields),
        st.dictionaries(st.sampled_from([*KNOWN, "colour"]), VALUES, max_size=2),
    )
    @settings(max_examples=count, deadline=None)
    def check(some: dict[str, Any], more: dict[str, Any]) -> None:
        body = object_of(json.dumps({**some, **more}).encode())
        if not JOB.is_valid(body):
            problems = spec_from_mapping(body)
            assert isinstance(problems, list), (problems, [each.message for each in JOB.iter_errors(body)])

    check()


def keep(rig: Rig, operation: tuple[str, str], count: int) -> None:
    """Send what keeps to the document and what does not, to what is there and to what is not."""
    verb, path = operation
    described, asked = SCHEMA[path][verb], openapi.OPERATIONS[operation].body
    checks = [check for check in CHECKS if check not in NOT_FOR.get(operation, ())]
    if "{" in path or asked:  # what is there, and whether it can be done, no schema says
        checks.remove(positive_data_acceptance)
    name = "".join(re.findall(r"\{(\w+)\}", path))
    ids = st.sampled_from(["", *there(rig, path)]) if "{" in path else st.just("")

    def cases(kind: schemathesis.GenerationMode, id: str) -> st.SearchStrategy[Case[Any]]:
        return described.as_strategy(generation_mode=kind, path_parameters={name: id} if id else None)

    @given(case=st.tuples(st.sampled_from(KINDS), ids).flatmap(lambda drawn: cases(*drawn)))
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def check(case: Case[Any]) -> None:
        if operation in LONG_POLLS:
            case.query["timeout_s"] = soon(case.query.get("timeout_s", 30.0))
        case.call_and_validate(base_url=rig.url, session=rig.session, checks=checks, timeout=20)

    check()


def soon(timeout_s: Any) -> Any:
    """Shorten a time that the document allows, because the test does not wait for a minute; keep any other value."""
    try:
        return min(float(timeout_s), 0.02) if 0 <= float(timeout_s) <= MAX_TIMEOUT_S else timeout_s
    except (TypeError, ValueError):
        return timeout_s


def there(rig: Rig, path: str) -> list[str]:
    """Ids that are no longer made up."""
    if path.startswith("/v1/gpus"):
        return ["g0", "a1.example:1", "g"]
    if path.startswith("/v1/nodes"):
        return ["a1.example", "a1"]
    if path.startswith("/v1/services"):
        return ["web"]
    if path.startswith("/v1/webhooks"):
        return ["there"]
    if path.startswith("/v1/templates"):
        return ["vllm", "torch-distributed"]
    if path.startswith("/v1/queues"):
        return ["research", "research/vision", "default"]
    if path.startswith(("/v1/access", "/v1/queue-versions")):
        return ["1"]
    if path.startswith("/v1/tokens"):
        return [token["id"] for token in rig.call("GET", "/v1/tokens").json()["tokens"][:3]]
    return [job["id"] for job in rig.call("GET", "/v1/jobs?limit=3").json()["jobs"]]


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
def test_openapi_operation_keeps_to_the_document(rig: Rig, operation: tuple[str, str]) -> None:
    keep(rig, operation, 3)


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
def test_openapi_operation_keeps_to_the_document_over_many_examples(
    rig: Rig, operation: tuple[str, str]
) -> None:
    keep(rig, operation, 300)
