"""A job request: accepted as it is meant, or refused with all that is wrong."""

import json
from typing import Any

import pytest

from mesos_gpu.model.jobs.fields import QUEUE_FORM
from mesos_gpu.model.jobs.job import Engine, JobSpec, OnGpuFailure, OnMemberFailure, Placement
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.jobs.permits import Control, Permits, Root
from mesos_gpu.model.nodes.driver import CUDA_LABEL
from mesos_gpu.wire.checking import BadJson
from mesos_gpu.wire.job_fields import write
from mesos_gpu.wire.jobs import decode, spec_from_mapping


def problems(**value: Any) -> dict[str, str]:
    spec = spec_from_mapping({"command": "true", **value}, permits=Permits())
    return {} if isinstance(spec, JobSpec) else {p.path: p.reason for p in spec}


DATA = {"name": "data", "path": "data", "size": "10GiB"}


def test_job_request_of_a_command_has_defaults() -> None:
    assert spec_from_mapping({"command": "/usr/bin/Train_It.sh --x"}) == JobSpec(
        name="train-it.sh", command="/usr/bin/Train_It.sh --x", cpus=1.0, mem_mib=128
    )


def test_job_request_fields_are_all_read() -> None:
    value = {
        "name": "a.b-1", "argv": ["a", ""], "cpus": 0.5, "mem_mib": 7, "gpus": 2, "gpu_model": "T4",
        "env": {"A": "1"}, "user": "alice", "labels": {"k": "v"}, "max_attempts": 3,
        "timeout_s": 1.5, "kill_grace_s": 0, "image": "a/b:c", "container_engine": "docker",
        "on_gpu_failure": "notify", "min_driver": "535.104.05", "placement": "spread",
        "priority": -1000, "queue": "lab", "tasks": 3, "on_member_failure": "fail", "preemptible": True,
        "gpu_memory_mib": 40000, "compute_capability": "8.0", "pull": True,
        "volumes": ["/data/a:/a:ro", "/b:b", "c:/c:rw"],
    }  # fmt: skip
    assert spec_from_mapping(value) == JobSpec(
        "a.b-1", None, ("a", ""), 0.5, 7, 2, ("T4",), {"A": "1"}, "alice", {"k": "v"}, 3, 1.5, 0.0,
        "a/b:c", Engine.DOCKER, OnGpuFailure.NOTIFY, "535.104.05",
        Placement.SPREAD, -1000, "lab", tasks=3, on_member_failure=OnMemberFailure.FAIL, preemptible=True,
        gpu_memory_mib=40000, compute_capability="8.0", pull=True,
        mounts=(Mount("/data/a", "/a"), Mount("/b", "b", read_only=False), Mount("c", "/c", read_only=False)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("volume", "mount"),
    [
        (DATA, Mount("data", "data", False, 10240, volume="data")),
        ({**DATA, "size": 1536}, Mount("data", "data", False, 1536, volume="data")),
        ({**DATA, "size": "2TiB", "path": "/d"}, Mount("data", "/d", False, 2 << 20, volume="data")),
        ({"name": "data", "path": "a,b", "read_only": True}, Mount("data", "a,b", True, volume="data")),
    ],
)
def test_job_request_has_named_volumes_which_are_written_as_they_were_read(
    volume: dict[str, Any], mount: Mount
) -> None:
    read = spec_from_mapping({"command": "true", "volumes": [volume]})
    assert isinstance(read, JobSpec)
    assert read.mounts == (mount,)
    written = write(read)["volumes"]
    assert spec_from_mapping({"command": "true", "volumes": written}) == read


def test_job_request_null_field_is_absent() -> None:
    assert spec_from_mapping({"command": "true", "user": None, "timeout_s": None, "env": None}) == JobSpec(
        "true", "true"
    )


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"volumes": "/a:/b"}, "/volumes", 'must be a list of at most 100 volumes, got "/a:/b"'),
        (
            {"volumes": ["/a"]},
            "/volumes/0",
            "must be HOST:PATH, or HOST:PATH:ro for read-only, as /data/imagenet:/d",
        ),
        ({"volumes": ["/a:/b:z"]}, "/volumes/0", "must be HOST:PATH"),
        ({"volumes": [1]}, "/volumes/0", "got 1"),
        ({"volumes": ["../a:/b"]}, "/volumes/0", "'../a' is not in the sandbox"),
        ({"volumes": ["/a:/b", "/c:/b/"]}, "/volumes/1", "two volumes are at '/b/'"),
        ({"volumes": [{"path": "data"}]}, "/volumes/0/name", "is needed for a named volume"),
        ({"volumes": [{"name": "data"}]}, "/volumes/0/path", "is needed for a named volume"),
        (
            {"volumes": [{**DATA, "name": "../data"}]},
            "/volumes/0/name",
            "must be a name of 1 to 63 of a-z, 0-9",
        ),
        ({"volumes": [{**DATA, "name": "a/b"}]}, "/volumes/0/name", 'got "a/b"'),
        ({"volumes": [{**DATA, "name": "a\0"}]}, "/volumes/0/name", "must be a name"),
        ({"volumes": [{**DATA, "name": "-a"}]}, "/volumes/0/name", 'got "-a"'),
        ({"volumes": [{**DATA, "name": "a" * 64}]}, "/volumes/0/name", "must be a name"),
        ({"volumes": [{**DATA, "name": 1}]}, "/volumes/0/name", "got 1"),
        ({"volumes": [{**DATA, "path": "../data"}]}, "/volumes/0", "'../data' is not in the sandbox"),
        ({"volumes": [{**DATA, "path": "."}]}, "/volumes/0", "'.' is not in the sandbox"),
        ({"volumes": [{**DATA, "path": "a:b"}]}, "/volumes/0/path", "without ':'"),
        ({"volumes": [{**DATA, "path": "a\0"}]}, "/volumes/0/path", "must be a path"),
        (
            {"volumes": [{**DATA, "size": "10GB"}]},
            "/volumes/0/size",
            "must be a whole number of MiB, or one with a",
        ),
        ({"volumes": [{**DATA, "size": 0}]}, "/volumes/0/size", "got 0"),
        ({"volumes": [{**DATA, "size": True}]}, "/volumes/0/size", "got true"),
        ({"volumes": [{**DATA, "size": 1.5}]}, "/volumes/0/size", "got 1.5"),
        ({"volumes": [{**DATA, "size": 2**31 + 1}]}, "/volumes/0/size", "at most 2097152GiB; got 2147483649"),
        ({"volumes": [{**DATA, "size": "9999999999TiB"}]}, "/volumes/0/size", "at most 2097152GiB"),
        ({"volumes": [{**DATA, "read_only": "yes"}]}, "/volumes/0/read_only", "must be true or false"),
        ({"volumes": [{**DATA, "seize": 1}]}, "/volumes/0/seize", "did you mean size?"),
        ({"volumes": ["/a:/b", DATA, {**DATA, "path": "b"}]}, "/volumes/2/name", '"data" appears twice'),
        ({"volumes": ["/a:data", DATA]}, "/volumes/1", "two volumes are at 'data'"),
        ({"volumes": [DATA], "tasks": 2}, "/volumes/0", "set tasks to 1, or name a path of the hosts"),
        ({"args": ["x"]}, "/args", "are arguments for the entrypoint of an image"),
        ({"args": "x", "image": "a"}, "/args", "must be a list of strings without NUL"),
        ({"pull": True}, "/pull", "needs an image"),
        ({"cpus": -1}, "/cpus", "must be a positive number, from 0.001 to 100000, got -1"),
        ({"cpus": True}, "/cpus", "got true"),
        ({"cpus": float("nan")}, "/cpus", "got NaN"),
        ({"cpus": 0.0004}, "/cpus", "from 0.001"),
        ({"cpus": 10**400}, "/cpus", "from 0.001 to 100000"),
        ({"mem_mib": 1.5}, "/mem_mib", "must be a positive integer, at most 2**31, got 1.5"),
        ({"mem_mib": 10**5000}, "/mem_mib", "got a value of type int"),
        (
            {"gpus": -1},
            "/gpus",
            "an integer from 0 to 1024, or a fraction of one GPU with at most three decimals, as 0.25, got -1",
        ),
        ({"gpus": 1025}, "/gpus", "as 0.25, got 1025"),
        ({"gpus": "1"}, "/gpus", 'got "1": write it as a number, without quotes'),
        ({"gpu_memory_mib": 40000}, "/gpu_memory_mib", "needs gpus of at least 1"),
        (
            {"gpus": 1, "gpu_memory_mib": 0},
            "/gpu_memory_mib",
            "must be a positive integer, at most 2**31, got 0",
        ),
        ({"gpus": 1, "gpu_memory_mib": "40g"}, "/gpu_memory_mib", 'got "40g"'),
        ({"compute_capability": "8.0"}, "/compute_capability", "needs gpus of at least 1"),
        ({"gpus": 1, "compute_capability": 8.0}, "/compute_capability", 'as "8.0", got 8.0'),
        (
            {"gpus": 1, "compute_capability": "8"},
            "/compute_capability",
            'a compute capability, as "8.0", got "8"',
        ),
        ({"tasks": 0}, "/tasks", "must be an integer from 1 to 1024, got 0"),
        ({"tasks": 1025}, "/tasks", "got 1025"),
        ({"on_member_failure": "ignore"}, "/on_member_failure", "one of restart, fail"),
        ({"preemptible": 1}, "/preemptible", "must be true or false, got 1"),
        ({"gpu_model": "T4"}, "/gpu_model", "needs gpus of at least 1"),
        ({"gpus": 1, "gpu_model": ["T4", "T4"]}, "/gpu_model", "must not have a model twice"),
        ({"gpus": 1, "gpu_model": [1]}, "/gpu_model", "a model or a list of models"),
        ({"env": {"A=B": "x"}}, "/env/A=B", "without '='"),
        ({"env": {"A": 1}}, "/env/A", "must be a string without NUL, got 1"),
        ({"env": {"A": "x\0"}}, "/env/A", "without NUL"),
        ({"env": {"a/b~": 1}}, "/env/a~1b~0", "must be a string"),
        ({"env": {1: "x"}}, "/env/1", "must have a non-empty name"),
        ({"env": {"A": "\ud800"}}, "/env/A", "must be a string"),
        ({"labels": {"a\0": "x"}}, "/labels/a\0", "must have a non-empty name without NUL"),
        ({"env": []}, "/env", "must be an object of strings"),
        ({"labels": {"": "x"}}, "/labels/", "must have a non-empty name"),
        ({"user": "root"}, "/user", "--allow-root"),
        ({"user": "A B"}, "/user", "a user name of Linux"),
        ({"name": "-x"}, "/name", "beginning and ending alphanumeric"),
        ({"name": "x" * 64}, "/name", "1 to 63"),
        ({"max_attempts": 0}, "/max_attempts", "from 1 to 1000"),
        ({"timeout_s": 0}, "/timeout_s", "a positive number of seconds"),
        ({"kill_grace_s": -1}, "/kill_grace_s", "from 0 to 3600"),
        ({"argv": ["x"]}, "/", "exactly one of command"),
        ({"command": " "}, "/command", "non-empty"),
        ({"command": "a\0"}, "/command", "without NUL"),
        ({"argv": ["a", "\0"], "command": None}, "/argv", "without NUL"),
        ({"command": None, "argv": []}, "/argv", "a list of strings"),
        ({"colour": 1}, "/colour", "unknown field"),
        ({"container_engine": "docker"}, "/container_engine", "needs an image"),
        (
            {"image": "a", "container_engine": "rkt"},
            "/container_engine",
            'one of mesos, own, docker, got "rkt"',
        ),
        ({"image": "a", "argv": ["x"]}, "/", "exactly one of command"),
        ({"image": "Ubuntu:22.04"}, "/image", "'Ubuntu' must be in lower case"),
        ({"image": 7}, "/image", "must be an image, as [registry[:port]/]path[:tag][@digest]: got 7"),
        ({"on_gpu_failure": "panic"}, "/on_gpu_failure", "one of restart, notify, ignore"),
        ({"placement": "best"}, "/placement", "one of bundle, spread, fragmentation"),
        ({"on_gpu_failure": 1}, "/on_gpu_failure", "got 1"),
        ({"priority": 1001}, "/priority", "must be an integer from -1000 to 1000, got 1001"),
        ({"priority": 0.5}, "/priority", "got 0.5"),
        ({"priority": "high"}, "/priority", 'got "high"'),
        ({"queue": "Lab"}, "/queue", f'must be {QUEUE_FORM}, got "Lab"'),
        ({"queue": ""}, "/queue", 'got ""'),
        ({"min_driver": 535}, "/min_driver", 'a driver version, as "535" or "535.104.05", got 535'),
        ({"min_driver": "535-open"}, "/min_driver", 'got "535-open"'),
        ({"min_driver": "535.", "gpus": 1}, "/min_driver", 'got "535."'),
        ({"min_driver": "5" * 5000}, "/min_driver", "must be a driver version"),
        (
            {"gpus": 1, "labels": {CUDA_LABEL: "99.1"}},
            f"/labels/{CUDA_LABEL}",
            (
                "must be a CUDA version up to 13.3, the newest known to this scheduler, or set "
                'min_driver; got "99.1"'
            ),
        ),
        ({"gpus": 1, "labels": {CUDA_LABEL: "new"}}, f"/labels/{CUDA_LABEL}", 'got "new"'),
        ({"gpus": 1, "labels": {CUDA_LABEL: "1" * 5000}}, f"/labels/{CUDA_LABEL}", "must be a CUDA version"),
    ],
)
def test_job_request_problem_names_field_value_and_rule(
    value: dict[str, Any], path: str, reason: str
) -> None:
    assert reason in problems(**value)[path]


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"cpu_limit": 1, "cpus": 1.5}, "/cpu_limit", "must be at least cpus, which is 1.5, got 1"),
        ({"cpu_limit": 0.001}, "/cpu_limit", "must be a number from 0.01 to 100000, got 0.001"),
        ({"cpu_limit": "all"}, "/cpu_limit", 'must be a number from 0.01 to 100000, got "all"'),
    ],
)
def test_job_request_limit_of_cpus_is_no_less_than_its_cpus(
    value: dict[str, Any], path: str, reason: str
) -> None:
    assert problems(**value) == {path: reason}
    kept = spec_from_mapping({"command": "true", "cpu_limit": 0.5})
    assert isinstance(kept, JobSpec)
    assert kept.cpu_limit == 0.5, "its CPUs are decided later"


def test_job_request_fraction_problem_is_reported_once() -> None:
    assert set(problems(gpus=1.5, gpu_model="T4", gpu_memory_mib=1, compute_capability="8.0")) == {"/gpus"}


def test_job_request_problems_are_reported_at_once() -> None:
    assert set(problems(cpus=0, gpus=-1, user="root", colour=1)) == {"/cpus", "/gpus", "/user", "/colour"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b'"x"', b"\xff", b"[" * 100000, b'{"cpus": NaN}', b'{"command": "\\ud800"}'],
)
def test_job_request_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadJson):
        decode(body, permits=Permits())


def test_job_request_of_an_image_needs_no_command() -> None:
    spec = spec_from_mapping({"image": "registry.example:5000/nvidia/cuda_x:12"})
    assert isinstance(spec, JobSpec)
    assert (spec.name, spec.command, spec.argv, spec.container_engine) == ("cuda-x", None, (), Engine.MESOS)


def test_job_request_of_an_image_defaults_to_the_engine_of_the_scheduler() -> None:
    for body, engine in (
        (b'{"image": "a"}', Engine.DOCKER),
        (b'{"image": "a", "container_engine": "mesos"}', Engine.MESOS),
        (b'{"command": "id"}', Engine.MESOS),
    ):
        spec = decode(body, permits=Permits(), engine=Engine.DOCKER)
        assert isinstance(spec, JobSpec)
        assert spec.container_engine is engine


@pytest.mark.parametrize(
    ("fields", "least"),
    [
        ({"gpus": 1, "labels": {CUDA_LABEL: "12.2"}}, "535"),
        ({"gpus": 1, "labels": {CUDA_LABEL: " 12.4.1 "}}, "550"),
        ({"gpus": 1, "labels": {CUDA_LABEL: ""}}, None),
        ({"gpus": 0, "labels": {CUDA_LABEL: "12.2"}}, None),
        ({"gpus": 1, "labels": {CUDA_LABEL: "12.2"}, "min_driver": "470.82"}, "470.82"),
        ({"gpus": 1, "labels": {CUDA_LABEL: "99.1"}, "min_driver": "700"}, "700"),
        ({"gpus": 0, "min_driver": "535"}, "535"),
    ],
)
def test_job_request_minimum_driver_is_given_or_from_the_label(
    fields: dict[str, Any], least: str | None
) -> None:
    spec = spec_from_mapping({"command": "true", **fields})
    assert isinstance(spec, JobSpec)
    assert spec.min_driver == least


@pytest.mark.parametrize(
    ("where", "image", "remedy"),
    [
        (Root.NOWHERE, None, "--allow-root host"),
        (Root.NOWHERE, "a", "--allow-root image"),
        (Root.IMAGE, None, "set an image"),
        (Root.IMAGE, "a", ""),
        (Root.HOST, None, ""),
        (Root.HOST, "a", ""),
    ],
)
def test_job_request_as_root_is_allowed_by_container_kind(
    where: Root, image: str | None, remedy: str
) -> None:
    spec = decode(
        json.dumps({"command": "id", "user": "root", "image": image}).encode(), permits=Permits(where)
    )
    if not remedy:
        assert isinstance(spec, JobSpec)
    else:
        assert isinstance(spec, list)
        assert [problem.path for problem in spec] == ["/user"]
        assert remedy in spec[0].reason


LISTED = Permits(control_access={"lb": (Control.API,), "dns@bind": (Control.MASTER,)}, default_user="bind")


@pytest.mark.parametrize(
    ("name", "user", "asked", "refused"),
    [
        ("lb", None, ["api"], ""),
        ("lb", "alice", ["api"], ""),
        ("lb", "alice", ["api", "master"], "master is not allowed to lb@alice"),
        ("dns", "bind", ["master"], ""),
        ("dns", None, ["master", "master"], ""),
        ("dns", "alice", ["master"], "--control-access dns@alice=master"),
        ("other", None, ["api", "master"], "--control-access other@bind=api,master"),
    ],
)
def test_job_control_access_is_for_the_listed_names(
    name: str, user: str | None, asked: list[str], refused: str
) -> None:
    body = {"name": name, "user": user, "command": "id", "control_access": asked}
    spec = decode(json.dumps(body).encode(), permits=LISTED)
    if not refused:
        assert isinstance(spec, JobSpec)
        assert [control.value for control in spec.control_access] == list(dict.fromkeys(asked))
    else:
        assert isinstance(spec, list)
        assert [problem.path for problem in spec] == ["/control_access"]
        assert refused in spec[0].reason


@pytest.mark.parametrize("value", ["api", ["agent"], [1], {"api": 1}, [["api"]]])
def test_control_access_is_a_list_of_known_services(value: object) -> None:
    assert "must be a list of api, master" in problems(control_access=value)["/control_access"]


def test_job_request_of_yaml_with_other_types_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["env"] = circle
    assert problems(gpu_model=circle) == {
        "/gpu_model": "must be a model or a list of models, got a value of type dict"
    }
    assert problems(**{"labels": {(1, 2): "x"}}) == {
        "/labels/(1, 2)": ("must have a non-empty name without NUL")
    }
