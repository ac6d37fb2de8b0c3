"""Jobs as command lines, and command lines as jobs."""

import shlex
import subprocess
from typing import Any

import pytest

from mesos_gpu.cli.jobs.options import request_of
from mesos_gpu.cli.jobs.run import run
from mesos_gpu.model.jobs.fields import Flag, entry
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.wire import job_command
from mesos_gpu.wire.job_command import command_of
from mesos_gpu.wire.jobs import spec_from_mapping

JOBS: dict[str, dict[str, Any]] = {
    "words": {"argv": ["python3", "train.py", "--text", "it's 5 $HOME", "-x", "", "a\nb"]},
    "shell": {"command": "echo  'a  b' \"$MESOS_GPU_ARRAY_INDEX\" | wc -l; ls *", "array": "0-99%8"},
    "name": {"argv": ["/usr/bin/env"], "name": "other"},
    "image alone": {"image": "repo/name:tag", "gpus": 1, "cpus": 2, "mem_mib": 2048, "pull": True},
    "amounts": {"argv": ["true"], "cpus": 0.001, "mem_mib": 1536, "disk_mib": 2048, "timeout_s": 5400.5},
    "whole cards": {
        "argv": ["true"], "gpus": 2, "cpus": 1, "mem_mib": 128, "gpu_model": ["A100", "RTX 4090"],
        "gpu_memory_mib": 40960, "compute_capability": "8.0", "min_driver": "535", "on_gpu_failure": "notify",
        "topology": {"preferred": "rack"}, "tasks": 4, "segment": 2, "on_member_failure": "fail",
    },
    "fraction": {"argv": ["true"], "gpus": 0.25, "cpus": 1.5, "mem_mib": 100, "isolation": "shared"},
    "exact share": {
        "argv": ["true"], "gpus": 3, "gpu_compute_pct": 30, "gpu_memory_mib": 4000, "gpu_memory_max_mib": 8000,
        "cpus": 1, "mem_mib": 128,
    },
    "texts": {
        "argv": ["true"], "env": {"A": "b c", "Q": "'\"$x\\", "E": "", "L": "1\n2"}, "labels": {"team": "a b=c"},
        "secrets": {"HF_TOKEN": "team/hf", "KEY": {"source": "team/key", "file": "key.pem"}},
        "volumes": ["/data/a b:/data:ro", "/scratch:scratch"], "fetch": ["https://host/a.tgz"],
        "notify": ["mail", "https://host/hook"], "constraints": [["hostname", "UNIQUE"], ["rack", "LIKE", "r:[1-3]"]],
        "app": "web", "near": "db", "ports": [0, 8080],
    },
    "named volumes": {
        "argv": ["true"], "volumes": [
            "/data:/data", {"name": "data", "path": "my data", "size": "10GiB"},
            {"name": "old", "path": "/old", "read_only": True},
        ],
    },
    "queue": {
        "argv": ["true"], "queue": "research/vision", "priority": -5, "class": "batch", "preemptible": True,
        "notice_s": 60, "notice_signal": "SIGUSR1", "max_attempts": 3, "user": "ann", "booking": "exam",
        "placement": "spread", "control_access": ["api"],
    },
}  # fmt: skip


def spec_of(job: dict[str, Any]) -> JobSpec:
    spec = spec_from_mapping(job)
    assert isinstance(spec, JobSpec), spec
    return spec


def parsed(line: str) -> JobSpec:
    """Read a command line as `mesos-gpu run` does."""
    program, verb, *words = shlex.split(line)
    assert (program, verb) == ("mesos-gpu", "run")
    given = dict(run.make_context("run", words).params)
    return spec_of(request_of(given.pop("cmd"), given, shell=given["shell"]))


@pytest.mark.parametrize("name", JOBS)
def test_command_of_a_job_makes_that_job(name: str) -> None:
    spec = spec_of(JOBS[name])
    made = command_of(spec, show_env=True)
    assert made.left_out == {}
    assert parsed(made.text) == spec
    assert spec_of(dict(made.request)) == spec


def test_command_names_no_field_that_is_as_without_it() -> None:
    assert command_of(spec_of({"argv": ["true"]}), show_env=True).text == "mesos-gpu run -- true"


def test_command_without_values_takes_them_from_the_shell() -> None:
    spec = spec_of({"argv": ["true"], "env": {"TOKEN": "hunter2"}})
    line = command_of(spec, show_env=False).text
    assert "hunter2" not in line
    printed = line.replace("mesos-gpu run", "printf '%s\\n'", 1)
    given = subprocess.run(["sh", "-c", printed], env={"TOKEN": "a b"}, capture_output=True, text=True)
    assert given.stdout.splitlines() == ["--env", "TOKEN=a b", "--", "true"]
    lacking = subprocess.run(["sh", "-c", printed], env={}, capture_output=True, text=True)
    assert lacking.returncode != 0, "a job without its variable is not submitted"


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"kill_grace_s": 30}, {"kill_grace_s"}),
        ({"upload": "sha256:" + "0" * 64}, {"upload"}),
        ({"health_checks": [{"protocol": "COMMAND", "command": "true"}]}, {"health_checks"}),
        ({"fetch": [{"uri": "https://host/a.tgz", "extract": False}]}, {"fetch"}),
        ({"labels": {"a key": "x"}}, {"labels"}),
        ({"volumes": [{"name": "data", "path": "a,b"}]}, {"volumes"}),
        ({"env": {"a.b": "x"}}, {"env"}),
        ({"image": "a/b", "argv": None, "args": ["serve"]}, {"args"}),
    ],
)
def test_command_names_fields_that_it_leaves_out(fields: dict[str, Any], left_out: set[str]) -> None:
    made = command_of(spec_of({"argv": ["true"], **fields}), show_env=True)
    assert made.left_out.keys() == left_out
    assert all(": " in reason for reason in made.left_out.values()), "each has a remedy"
    parsed(made.text)


@pytest.mark.parametrize("field", [f for f in FIELDS if f.option], ids=lambda field: field.key)
def test_each_kind_of_option_has_words(field: Any) -> None:
    if not isinstance(field.kind, Flag):
        entry(job_command._TEXTS, field.kind)  # KeyError if the table lacks it
