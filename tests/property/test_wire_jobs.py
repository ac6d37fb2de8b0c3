"""Whatever a client sends: a job, or a list of problems; never another exception."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.api.v1 import views
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.wire.checking import BadJson
from mesos_gpu.wire.job_fields import KNOWN
from mesos_gpu.wire.jobs import decode, spec_from_mapping
from tests.sights import ALL_SEEING

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
requests: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(KNOWN) | st.text(max_size=4), values, max_size=6
)
texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=6)
good = st.fixed_dictionaries(
    {"argv": st.lists(texts.filter(bool), min_size=1, max_size=3)},
    optional={
        "cpus": st.floats(0.001, 1e5),
        "mem_mib": st.integers(1, 2**31),
        "gpus": st.integers(0, 1024),
        "env": st.dictionaries(texts.filter(lambda t: bool(t) and "=" not in t), texts, max_size=2),
        "max_attempts": st.integers(1, 1000),
        "image": st.sampled_from(["a", "r.example:5000/a/b:1"]),
        "on_gpu_failure": st.sampled_from(["restart", "notify", "ignore"]),
        "min_driver": st.sampled_from(["535", "535.104.05"]),
        "priority": st.integers(-1000, 1000),
        "queue": st.sampled_from(["default", "lab.a-1"]),
        "tasks": st.integers(1, 1024),
        "on_member_failure": st.sampled_from(["restart", "fail"]),
        "preemptible": st.booleans(),
        "timeout_s": st.none() | st.floats(0.001, 1e9),
    },
)


@given(requests)
def test_job_of_any_object_is_read_or_has_problems(value: dict[str, Any]) -> None:
    spec = decode(json.dumps(value).encode(), permits=Permits())
    if not isinstance(spec, JobSpec):
        assert spec
        assert all(problem.path[0] == "/" for problem in spec)


@given(st.dictionaries(st.sampled_from(KNOWN), values | st.integers() | st.floats() | st.text()))
def test_job_of_any_mapping_is_read_or_has_problems(value: dict[str, Any]) -> None:
    assert spec_from_mapping(value)


@given(st.binary(max_size=40))
def test_job_of_any_bytes_is_read_the_same_or_is_no_json(body: bytes) -> None:
    try:
        assert decode(body, permits=Permits()) is not None
    except BadJson:
        return  # the one error that a body may raise


@given(good)
def test_job_that_is_valid_is_taken_as_it_is(value: dict[str, Any]) -> None:
    spec = decode(json.dumps(value).encode(), permits=Permits())
    assert isinstance(spec, JobSpec)
    assert list(spec.argv) == value["argv"]
    assert spec.env == value.get("env", {})
    assert spec.cpus == value.get("cpus", 1.0)
    assert spec.timeout_s == value.get("timeout_s")


@given(good)
def test_a_job_that_is_shown_can_be_sent_again(value: dict[str, Any]) -> None:
    spec = decode(json.dumps(value).encode(), permits=Permits())
    assert isinstance(spec, JobSpec)
    view = View(State(started_at=0.0), Settings.of("e", "m"), 0.0)
    job = Job(JobId("j"), spec, submitted_at=0.0, sequence=1)
    shown: Mapping[str, Any] = views.job(view, job, ALL_SEEING, show_env=True)
    sent = decode(json.dumps({key: shown[key] for key in KNOWN}).encode(), permits=Permits())
    assert sent == replace(spec, priority=job.priority), "the priority is shown that it has"
