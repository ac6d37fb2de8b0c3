"""Secrets in requests: what is taken, what is refused, and that a value that was sent by mistake is never repeated."""

import pytest

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.secret import MAX_SECRETS, SOURCE_FORM, Secret
from mesos_gpu.wire.job_fields import write
from mesos_gpu.wire.jobs import spec_from_mapping
from mesos_gpu.wire.secrets import secret_of

OPEN = Permits(secrets=True)


def asked(secrets: object, **more: object) -> JobSpec | list[str]:
    spec = spec_from_mapping({"command": "true", "secrets": secrets, **more}, permits=OPEN)
    return spec if isinstance(spec, JobSpec) else [f"{each.path} {each.reason}" for each in spec]


def test_secret_request_for_a_variable_and_a_file_is_read() -> None:
    spec = asked({"HF_TOKEN": "team/hf", "KEY": {"source": "team/ssh#key", "file": "keys/id"}})
    assert isinstance(spec, JobSpec)
    assert spec.secrets == (Secret("HF_TOKEN", "team/hf"), Secret("KEY", "team/ssh#key", "keys/id"))
    written = write(spec)["secrets"]
    assert written == {
        "HF_TOKEN": {"source": "team/hf", "file": None},
        "KEY": {"source": "team/ssh#key", "file": "keys/id"},
    }
    again = asked(written)
    assert isinstance(again, JobSpec)
    assert again.secrets == spec.secrets


@pytest.mark.parametrize(
    "path",
    ["", "/team/hf", "team/", "team//hf", "../hf", "team/../hf", "team/.hf", "a b", "a\nb", "a" * 65, "a/" * 8 + "a",
     "team/hf#", "team/hf#a/b", "hf_kJx9!%"],
)  # fmt: skip
def test_secret_path_that_is_malformed_is_refused_and_not_repeated(path: str) -> None:
    problems = asked({"TOKEN": path})
    assert isinstance(problems, list)
    assert problems == [f"/secrets/TOKEN must be {SOURCE_FORM}"]


@pytest.mark.parametrize("file", ["/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/.", "a\0b", 7, ""])
def test_secret_file_is_below_the_sandbox(file: object) -> None:
    problems = asked({"KEY": {"source": "team/ssh", "file": file}})
    assert isinstance(problems, list)
    assert "/secrets/KEY" in problems[0]


@pytest.mark.parametrize("name", ["MESOS_TASK_ID", "CUDA_VISIBLE_DEVICES", "A-B", "1A", "", "A=B", "A" * 129])
def test_secret_names_exclude_variables_of_the_platform(name: str) -> None:
    problems = asked({name: "team/hf"})
    assert isinstance(problems, list)
    assert len(problems) == 1


def test_secret_request_problems_are_reported_at_once() -> None:
    problems = asked(
        {
            "A": {"source": "a", "file": "x"},
            "B": {"source": "b", "file": "x/y"},
            "C": "no path",
            "D": "d",
            "E": {"source": "e", "field": "f"},
        },
        env={"D": "1"},
        cpus=-1,
    )
    assert isinstance(problems, list)
    assert sorted(each.split()[0] for each in problems) == [
        "/cpus", "/secrets/B", "/secrets/C", "/secrets/D", "/secrets/E",
    ]  # fmt: skip


def test_secrets_of_a_job_are_bounded() -> None:
    assert isinstance(asked({f"S{n}": "a" for n in range(MAX_SECRETS)}), JobSpec)
    assert isinstance(asked({f"S{n}": "a" for n in range(MAX_SECRETS + 1)}), list)
    assert isinstance(asked(["a"]), list)


def test_secret_request_without_a_store_is_refused_with_a_remedy() -> None:
    problems = spec_from_mapping({"command": "true", "secrets": {"A": "a"}}, permits=Permits())
    assert isinstance(problems, list)
    assert (problems[0].path, "--secrets-dir" in problems[0].reason) == ("/secrets", True)
    assert isinstance(spec_from_mapping({"command": "true"}, permits=Permits()), JobSpec)


def test_secret_option_of_the_command_line_is_read() -> None:
    assert secret_of("HF_TOKEN=team/hf") == ("HF_TOKEN", {"source": "team/hf", "file": None})
    assert secret_of("KEY=team/ssh#key:keys/id") == ("KEY", {"source": "team/ssh#key", "file": "keys/id"})
    for wrong in ("HF_TOKEN", "=a", "A=", "A=b:", "A=b:/c", "A=hf_secret!"):
        said = secret_of(wrong)
        assert isinstance(said, str)
        assert "hf_secret" not in said
