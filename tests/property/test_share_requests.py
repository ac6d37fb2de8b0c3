"""Whatever share of a GPU is asked for: it is the same in JSON, in the store, in the journal, by the OpenAPI document
and of an app; and what is no share is refused everywhere."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import isfinite
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.api import openapi
from mesos_gpu.api.v1 import views
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.journal import EVENTS
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import FIELDS, Job, JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.saves import SaveJob
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.apps.workload import job_of
from mesos_gpu.wire import journal
from mesos_gpu.wire.job_fields import KNOWN
from mesos_gpu.wire.jobs import decode, spec_from_mapping
from mesos_gpu.wire.marathon.app import app_of, app_to_json
from mesos_gpu.wire.marathon.options import gpu_options
from tests.sights import ALL_SEEING

DOCUMENT: Final = openapi.document()
REQUEST: Final = Draft202012Validator({"$ref": "#/components/schemas/JobRequest", **DOCUMENT})
ANSWER: Final = Draft202012Validator({"$ref": "#/components/schemas/Job", **DOCUMENT})
OF_APP: Final = {field.key: field.of_app for field in FIELDS if field.of_app}
MIB: Final = st.integers(1, 2**31 - 1)  # as apps have them


@st.composite
def shares(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a request for a share that is to be accepted."""
    asked: dict[str, Any] = {}
    is_exact = draw(st.booleans())
    if not is_exact:
        asked["gpus"] = draw(st.integers(1, 999)) / 1000
    elif draw(st.booleans()):
        asked["gpus"] = draw(st.integers(1, 1024))
    if is_exact or draw(st.booleans()):
        asked["gpu_compute_pct"] = draw(st.integers(1, 100))
    if is_exact or draw(st.booleans()):
        asked["gpu_memory_mib"] = draw(MIB)
    if draw(st.booleans()):
        asked["gpu_memory_max_mib"] = draw(st.integers(asked.get("gpu_memory_mib", 1), 2**31 - 1))
    if draw(st.booleans()):
        asked["isolation"] = draw(st.sampled_from([each.value for each in Isolation]))
    return asked


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path_factory.mktemp("state") / "scheduler.sqlite")
    yield opened
    opened.close()


def accepted(asked: dict[str, Any]) -> JobSpec:
    body = json.dumps({"command": "true", **asked}).encode()
    REQUEST.validate(json.loads(body))
    spec = decode(body, permits=Permits())
    assert isinstance(spec, JobSpec), spec
    return spec


@given(shares(), st.integers(1, 1024))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_share_is_the_same_wherever_it_is_written(
    store: SqliteStore, asked: dict[str, Any], tasks: int
) -> None:
    spec = accepted({**asked, "tasks": tasks})
    assert spec.is_share
    request = spec.share_request(Isolation.SHARED)
    assert request is not None
    assert 1 <= request.compute_milli <= WHOLE
    assert request.memory_of(81_920) == (request.memory_mib or 81_920 * spec.gpu_milli // WHOLE)
    job = Job(JobId("j"), spec, submitted_at=0.0, sequence=1)

    shown: dict[str, Any] = views.job(
        View(State(started_at=0.0), Settings.of("e", "m"), 0.0), job, ALL_SEEING
    )  # type: ignore[assignment]
    read = json.loads(json.dumps(shown))
    ANSWER.validate(read)
    assert {key: read[key] for key in asked} == asked
    sent = decode(json.dumps({key: read[key] for key in KNOWN}).encode(), permits=Permits())
    assert sent == replace(spec, priority=job.priority), "the priority is shown that it has"

    store.save([SaveJob(job)])
    assert store.load().jobs == (job,)

    event = ev.JobSubmitted(job.id, spec)
    assert EVENTS.decode(msgspec.Raw(journal.encode(journal.named(event)))) == event


@given(shares(), st.booleans())
def test_a_share_of_an_app_is_that_of_a_job(asked: dict[str, Any], by_label: bool) -> None:
    options = {OF_APP[key]: value for key, value in asked.items() if key in OF_APP}
    fraction = asked.get("gpus", 1)
    label = {"GPU_SHARE": str(fraction)} if by_label and fraction < 1 else {}
    definition = {
        "id": "/a",
        "cmd": "serve",
        "labels": label,
        **({"gpus": 1 if label else fraction} if "gpus" in asked else {}),
        **({"gpu": options} if options else {}),
    }
    app = app_of(json.loads(json.dumps(definition)))
    assert isinstance(app, App), app
    written = json.loads(json.dumps(app_to_json(app)))
    assert app_of(written) == app
    assert written["gpus"] == definition.get("gpus", 1)
    made = job_of(app, gpu_options(app), version="1")
    assert isinstance(made, JobSpec), made
    assert made.share_request(Isolation.ANY) == accepted(asked).share_request(Isolation.ANY)
    assert (made.gpus, made.counted_milli) == (accepted(asked).gpus, accepted(asked).counted_milli)


@given(st.floats() | st.integers(-5, 1030) | st.integers(-9, 2000).map(lambda milli: milli / 1000))
@settings(max_examples=500)
def test_a_number_is_gpus_or_thousandths_of_one_or_is_refused(gpus: float) -> None:
    spec = spec_from_mapping({"command": "true", "gpus": gpus})
    milli = Fraction(repr(gpus)) * 1000 if isfinite(gpus) else Fraction(-1)
    whole = milli % 1000 == 0 and 0 <= milli <= 1024 * 1000
    part = milli % 1 == 0 and 0 < milli < 1000
    if whole or part:
        assert isinstance(spec, JobSpec)
        assert spec.gpus * spec.gpu_milli == milli
    else:
        assert [problem.path for problem in spec] == ["/gpus"]  # type: ignore[union-attr]
    app = app_of({"id": "/a", "cmd": "serve", "gpus": gpus})
    assert isinstance(app, App) == (whole or part)
