"""Parsing and checking of job requests into a `JobSpec`, or all problems at once; pure functions.

`JobSpec` declares the checks of single fields; this module has the rules that involve several fields.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mesos_gpu.model.jobs.job import FIELDS, Engine, JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.nodes.driver import CUDA_LABEL, CUDA_OF_BRANCH, branch_for
from mesos_gpu.wire import image as images
from mesos_gpu.wire import job_fields
from mesos_gpu.wire.checking import Check, Problem, escaped, object_of, show
from mesos_gpu.wire.shares import OF_JOBS, share_problems

_NO_MODELS: Final[Mapping[str, int]] = MappingProxyType({})
_AMOUNTS: Final = ("cpus", "mem_mib")  # their JSON keys equal the names of the fields
_NEEDS: Final = {
    "gpus": "needs gpus of at least 1",
    "image": "needs an image",
    "topology": 'needs topology, as {"required": "rack"}',
}


def decode(
    body: bytes,
    *,
    permits: Permits,
    engine: Engine = Engine.MESOS,
    most_mib: Mapping[str, int] = _NO_MODELS,
) -> JobSpec | list[Problem]:
    """Parse the body of a job request; return the job, or all problems.

    Args:
        body: JSON of the request.
        permits: Permissions that the operator grants.
        engine: Engine for images of jobs that name none.
        most_mib: Largest memory for shares of a GPU, by known model.

    Raises:
        BadJson: The body is not a JSON object.
    """
    return spec_from_mapping(object_of(body), permits=permits, engine=engine, most_mib=most_mib)


def left_open(body: bytes) -> frozenset[str]:
    """Return which of CPUs and memory a valid request leaves to the scheduler, by the names of their fields.

    Raises:
        BadJson: The body is not a JSON object.
    """
    return left_open_of(object_of(body))


def left_open_of(value: Mapping[str, Any]) -> frozenset[str]:
    """Return which of CPUs and memory a request, as a mapping, leaves to the scheduler."""
    return frozenset(name for name in _AMOUNTS if value.get(name) is None)


def spec_from_mapping(
    value: Mapping[str, Any],
    *,
    permits: Permits | None = None,
    engine: Engine = Engine.MESOS,
    most_mib: Mapping[str, int] = _NO_MODELS,
) -> JobSpec | list[Problem]:
    """Check a job request given as a mapping, as from YAML; return the job, or all problems. A null field counts as
    absent.

    Without `permits`, everything that an operator must allow counts as allowed.
    """
    check = Check(value, job_fields.KNOWN)
    _report_what_runs(check)
    asked = job_fields.read(check)
    if asked["gpu_compute_pct"] is not None and "gpus" not in check.given:
        asked["gpus"] = 1
    spec = JobSpec(**{**asked, **_settled(check, asked, engine)})
    _report_share(check, spec, most_mib)
    _report_unmet(check, asked)
    if permits is not None:
        _report_unpermitted(check, spec, permits)
    if spec.near is not None and spec.near == spec.away:
        check.problem(
            "away", f"has the same app as near, {show(spec.away)}, so that no node is possible; leave one out"
        )
    if spec.segment and spec.tasks % spec.segment and not {"segment", "tasks"} & check.failed:
        check.problem("segment", f"must divide tasks, which is {spec.tasks}, got {spec.segment}")
    _report_cpus(check, spec)
    return check.problems or spec


def _report_cpus(check: Check, spec: JobSpec) -> None:
    most = spec.cpu_limit
    if most is None or "cpus" not in check.given or {"cpus", "cpu_limit"} & check.failed or most >= spec.cpus:
        return
    check.problem("cpu_limit", f"must be at least cpus, which is {spec.cpus:g}, got {most:g}")


def _report_what_runs(check: Check) -> None:
    command, argv = (key in check.given for key in ("command", "argv"))
    its_own = not command and not argv and isinstance(check.given.get("image"), str)  # the image's entrypoint
    if command == argv and not its_own and not {"command", "argv"} & check.meant:
        check.problem("", "must have exactly one of command (for /bin/sh -c) and argv (a list)")


def _settled(check: Check, asked: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """Return the values of absent fields that follow from other fields."""
    settled = {"name": asked["name"] or default_name(asked["command"], asked["argv"], asked["image"])}
    if asked["image"] is None:
        settled["container_engine"] = Engine.MESOS
    elif "container_engine" not in check.given:
        settled["container_engine"] = engine
    if "min_driver" not in check.given and asked["gpus"]:
        settled["min_driver"] = _driver_of_label(check)
    return settled


def default_name(command: str | None, argv: tuple[str, ...], image: str | None = None) -> str:
    """Return the name of the program, or of the image, reduced to what is permitted in a job's name."""
    words = (command or "").split() or list(argv) or [images.short_name(image) if image else "job"]
    base = words[0].rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9.-]+", "-", base)[:40].strip(".-") or "job"


def _driver_of_label(check: Check) -> str | None:
    """Return the first driver branch that runs the CUDA version of the label; None without the label."""
    labels = check.given.get("labels")
    cuda = labels.get(CUDA_LABEL) if isinstance(labels, dict) else None
    if not isinstance(cuda, str) or not cuda.strip():
        return None
    least = branch_for(cuda.strip())
    if least is None:
        newest = ".".join(map(str, CUDA_OF_BRANCH[-1][1]))
        form = f"a CUDA version up to {newest}, the newest known to this scheduler"
        check.problem(f"labels/{escaped(CUDA_LABEL)}", f"must be {form}, or set min_driver; got {show(cuda)}")
    return least


def _report_unmet(check: Check, asked: Mapping[str, Any]) -> None:
    """Report fields that are set without the field that they need."""
    for field in FIELDS:
        needed, is_asked = field.needs, field.key in check.given and asked[field.name]
        if is_asked and needed and not asked[needed] and not {needed, field.key} & check.failed:
            check.problem(field.key, _NEEDS[needed])


def _report_share(check: Check, spec: JobSpec, most_mib: Mapping[str, int]) -> None:
    """Report why the requested share of a GPU is invalid, as far as the other fields are valid."""
    doubtful = {name for name in (*OF_JOBS, "gpu_model") if OF_JOBS.get(name, name) in check.failed}
    for name, why in share_problems(spec, OF_JOBS, doubtful=doubtful, most_mib=most_mib):
        check.problem(OF_JOBS[name], why)


def _report_unpermitted(check: Check, spec: JobSpec, permits: Permits) -> None:
    for key, why in (
        ("user", permits.problem_of_user(spec.user, has_image=spec.image is not None)),
        ("control_access", permits.problem_of_controls(spec.control_access, spec.name, spec.user)),
        ("secrets", permits.problem_of_secrets(spec.secrets)),
        ("image_secret", permits.problem_of_secrets([spec.image_secret] if spec.image_secret else ())),
    ):
        if why:
            check.problem(key, why)
