"""Numbers of GPUs and fractions of one in JSON, in job requests and in resizes of running jobs; pure functions."""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.jobs.fields import Field, Gpus, Whole
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.model.nodes.gpu_names import models_of, unknown
from mesos_gpu.model.shares.units import WHOLE, milli_of
from mesos_gpu.wire.checking import Check, Problem, is_number, object_of, show

#: Fields that apply neither to whole GPUs nor to work without GPUs.
ONLY_OF_SHARES: Final = ("gpu_memory_max_mib", "isolation")
#: Fields that decide whether a job has a share, and of what size.
OF_SHARES: Final[Mapping[str, Field]] = {
    field.name: field
    for field in FIELDS
    if field.name in ("gpus", "gpu_compute_pct", "gpu_memory_mib", *ONLY_OF_SHARES)
}


#: Names of these fields in messages about jobs, and about apps.
OF_JOBS: Final[Mapping[str, str]] = {name: field.key for name, field in OF_SHARES.items()}
OF_APPS: Final[Mapping[str, str]] = {
    name: f"gpu.{field.of_app}" if field.of_app else field.key for name, field in OF_SHARES.items()
}


_PATCHED: Final = ("gpu_memory_mib", "gpu_compute_pct", "gpu_memory_max_mib")
_BOUNDS: Final = {
    field.key: (field.kind.least, field.kind.most)
    for field in FIELDS
    if field.key in _PATCHED and isinstance(field.kind, Whole)
}
_PART: Final = "gpus"
MAX_MIB: Final = _BOUNDS["gpu_memory_mib"][1]
_NO_MODELS: Final[Mapping[str, int]] = MappingProxyType({})


def gpu_milli(value: object, kind: Gpus, named: Mapping[str, str] = OF_JOBS) -> int | str:
    """Return the thousandths of GPUs that a JSON number requests; or a text that says what it must be.

    A float counts as its shortest decimal, so that 0.333 is exactly 333 thousandths. `named`: as in `share_problems`.
    """
    wrong = f"must be {kind.words}, got {show(value)}"
    if not is_number(value):
        return f"{wrong}: write it as a number, without quotes" if isinstance(value, str) else wrong
    assert isinstance(value, int | float), "what a number is"
    if value == int(value):
        return int(value) * WHOLE if kind.holds(value) else wrong
    if value > 1:
        exact = f"{named['gpu_compute_pct']} and {named['gpu_memory_mib']}"
        return f"{wrong}: for a part of each of several GPUs, set {exact}"
    return milli_of(repr(value)) or wrong


def share_problems(
    spec: JobSpec,
    named: Mapping[str, str],
    *,
    doubtful: Collection[str] = (),
    most_mib: Mapping[str, int] = _NO_MODELS,
) -> Iterator[tuple[str, str]]:
    """Yield each field of a job that is inconsistent with others, with the reason.

    Args:
        spec: The requested job.
        named: Name of each of `OF_SHARES` in messages, by its name in `JobSpec`.
        doubtful: Names of fields that were refused already, and so allow no conclusions.
        most_mib: Largest memory for shares of a GPU, by known model.
    """
    memory = named["gpu_memory_mib"]
    settled = {"gpus", "gpu_compute_pct"}.isdisjoint(doubtful)
    if settled and not spec.is_share:
        yield from _without_share(spec, named, doubtful)
        return
    if (
        settled
        and spec.gpu_milli == WHOLE
        and spec.gpu_memory_mib is None
        and "gpu_memory_mib" not in doubtful
    ):
        yield (
            "gpu_compute_pct",
            f"got {spec.gpu_compute_pct} without memory; also set {memory}, the memory of the share of each GPU, "
            "or request gpus as a fraction, as 0.25",
        )
    if "gpu_memory_mib" in doubtful:
        return
    least, most = spec.gpu_memory_mib, spec.gpu_memory_max_mib
    if least is not None and most is not None and most < least and "gpu_memory_max_mib" not in doubtful:
        yield "gpu_memory_max_mib", f"must be at least {memory}, which is {least}, got {most}"
    if settled and "gpu_model" not in doubtful and (why := _beyond_models(spec, most_mib)):
        yield "gpu_memory_mib", why


def _without_share(
    spec: JobSpec, named: Mapping[str, str], doubtful: Collection[str]
) -> Iterator[tuple[str, str]]:
    if spec.gpu_compute_pct is not None:
        return  # a share without GPU, which is reported as an unmet need of gpus
    exact = f"{named['gpu_compute_pct']} and {named['gpu_memory_mib']}"
    for name in ONLY_OF_SHARES:
        asked = getattr(spec, name)
        if asked is not None and name not in doubtful:
            value = asked.value if isinstance(asked, Enum) else asked
            remedy = f"request gpus as a fraction, as 0.25, or set {exact}; or leave it out"
            yield name, f"applies only to a share of a GPU, got {value}: {remedy}"


def _beyond_models(spec: JobSpec, most_mib: Mapping[str, int]) -> str:
    """Return why no GPU of the models that a share names has enough memory; "" if one may have."""
    wanted = spec.gpu_memory_mib
    if wanted is None or not spec.gpu_model or unknown(spec.gpu_model, most_mib):
        return ""
    has = {model: most_mib[model] for model in models_of(spec.gpu_model, frozenset(most_mib))}
    if not all(0 < mib < wanted for mib in has.values()):
        return ""
    capacities = ", ".join(f"{model} has {mib} MiB for shares" for model, mib in has.items())
    return f"exceeds the memory of the requested models, got {wanted}: {capacities}; request less, or another model"


def decode_resize(body: bytes) -> Mapping[str, int | None] | list[Problem]:
    """Return the changes that a merge patch (RFC 7396) makes to the shares of a running job.

    A fraction of a GPU (`gpus`) applies to its memory and its compute, unless other fields set them.

    Returns:
        New values by field of `JobSpec`, with None to remove a request; or all problems.

    Raises:
        BadJson: The body is not a JSON object.
    """
    value = object_of(body)
    check = Check(value, (_PART, *_PATCHED))
    patch: dict[str, int | None] = {}
    if _PART in value:
        part = check.number(
            _PART, 0.5, _is_part, "a fraction of one GPU with at most three decimals, as 0.25"
        )
        patch = {"gpu_milli": round(part * WHOLE), "gpu_memory_mib": None, "gpu_compute_pct": None}
    patch |= {
        name: None if value[name] is None else check.integer(name, 1, _BOUNDS[name])
        for name in _PATCHED
        if name in value
    }
    memory_mib, most_mib = patch.get("gpu_memory_mib"), patch.get("gpu_memory_max_mib")
    if not value:
        check.problem("", f"must have at least one of {', '.join((_PART, *_PATCHED))}")
    if not check.problems and memory_mib and most_mib and most_mib < memory_mib:
        check.problem("gpu_memory_max_mib", f"must be at least gpu_memory_mib, {memory_mib}, got {most_mib}")
    return check.problems or patch


def _is_part(gpus: float) -> bool:
    return 0 < gpus < 1 and round(gpus * WHOLE) / WHOLE == gpus
