"""Numbers of GPUs and parts of one in JSON, in requests for jobs and for changes of running jobs. Pure."""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.jobs.fields import Field, Gpus, Whole
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.model.nodes.gpu_names import models_of, unknown
from mesos_gpu.model.shares.units import WHOLE, milli_of
from mesos_gpu.wire.checking import Check, Problem, is_number, object_of, show

#: What has no meaning for whole GPUs, nor for work without any.
ONLY_OF_SHARES: Final = ("gpu_memory_max_mib", "isolation")
#: All that say whether it is a share, and of what size.
OF_SHARES: Final[Mapping[str, Field]] = {
    field.name: field
    for field in FIELDS
    if field.name in ("gpus", "gpu_compute_pct", "gpu_memory_mib", *ONLY_OF_SHARES)
}


#: What people call them in requests for jobs, and in apps.
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
    """Thousandths of GPUs that a number in JSON asks for; or what it must be instead, in words.

    A float is taken by its shortest decimal, so that 0.333 is 333 thousandths exactly. `named`: as of `share_problems`.
    """
    wrong = f"must be {kind.words}, got {show(value)}"
    if not is_number(value):
        return f"{wrong}: write a number, without quotes" if isinstance(value, str) else wrong
    assert isinstance(value, int | float), "what a number is"
    if value == int(value):
        return int(value) * WHOLE if kind.holds(value) else wrong
    if value > 1:
        exact = f"{named['gpu_compute_pct']} and {named['gpu_memory_mib']}"
        return f"{wrong}: for a part of each of several, set {exact}"
    return milli_of(repr(value)) or wrong


def share_problems(
    spec: JobSpec,
    named: Mapping[str, str],
    *,
    doubtful: Collection[str] = (),
    most_mib: Mapping[str, int] = _NO_MODELS,
) -> Iterator[tuple[str, str]]:
    """Each field of a job that does not go with the others, and why.

    Args:
        spec: What is asked for.
        named: What people call each of `OF_SHARES`, by its name in `JobSpec`.
        doubtful: Those of them, and `gpu_model`, whose value is refused already: nothing is concluded from these.
        most_mib: The most memory that a GPU has for shares, of each model that is known.
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
            f"got {spec.gpu_compute_pct} without memory: set {memory} too, which is then the share's of each GPU; "
            "or ask for gpus as a fraction, as 0.25",
        )
    if "gpu_memory_mib" in doubtful:
        return
    least, most = spec.gpu_memory_mib, spec.gpu_memory_max_mib
    if least is not None and most is not None and most < least and "gpu_memory_max_mib" not in doubtful:
        yield "gpu_memory_max_mib", f"must be {memory} or more, which is {least}; got {most}"
    if settled and "gpu_model" not in doubtful and (why := _beyond_models(spec, most_mib)):
        yield "gpu_memory_mib", why


def _without_share(
    spec: JobSpec, named: Mapping[str, str], doubtful: Collection[str]
) -> Iterator[tuple[str, str]]:
    if spec.gpu_compute_pct is not None:
        return  # it asks for a share of no GPU, which is told
    exact = f"{named['gpu_compute_pct']} and {named['gpu_memory_mib']}"
    for name in ONLY_OF_SHARES:
        asked = getattr(spec, name)
        if asked is not None and name not in doubtful:
            said = asked.value if isinstance(asked, Enum) else asked
            remedy = f"ask for gpus as a fraction, as 0.25, or set {exact}; or leave it out"
            yield name, f"is for a share of a GPU, got {said}: {remedy}"


def _beyond_models(spec: JobSpec, most_mib: Mapping[str, int]) -> str:
    """Why no GPU of the models that a share names has as much memory, by those that are known; "": it may."""
    wanted = spec.gpu_memory_mib
    if wanted is None or not spec.gpu_model or unknown(spec.gpu_model, most_mib):
        return ""
    has = {model: most_mib[model] for model in models_of(spec.gpu_model, frozenset(most_mib))}
    if not all(0 < mib < wanted for mib in has.values()):
        return ""
    said = ", ".join(f"{model} has {mib} MiB for shares" for model, mib in has.items())
    return f"never fits the models that it names, got {wanted}: {said}; ask for less, or for another model"


def decode_resize(body: bytes) -> Mapping[str, int | None] | list[Problem]:
    """Return the changes that a merge patch (RFC 7396) makes to the shares of a running job.

    A part of a GPU (`gpus`) is of its memory and of its compute, except for what other fields say.

    Returns:
        New values by names of fields of `JobSpec`, None where a request is taken back; or all problems.

    Raises:
        BadJson: The body is no JSON object.
    """
    value = object_of(body)
    check = Check(value, (_PART, *_PATCHED))
    patch: dict[str, int | None] = {}
    if _PART in value:
        part = check.number(_PART, 0.5, _is_part, "a part of one GPU in thousandths, as 0.25")
        patch = {"gpu_milli": round(part * WHOLE), "gpu_memory_mib": None, "gpu_compute_pct": None}
    patch |= {
        name: None if value[name] is None else check.integer(name, 1, _BOUNDS[name])
        for name in _PATCHED
        if name in value
    }
    memory_mib, most_mib = patch.get("gpu_memory_mib"), patch.get("gpu_memory_max_mib")
    if not value:
        check.problem("", f"says nothing of {', '.join((_PART, *_PATCHED))}")
    if not check.problems and memory_mib and most_mib and most_mib < memory_mib:
        check.problem("gpu_memory_max_mib", f"must be at least gpu_memory_mib, {memory_mib}, got {most_mib}")
    return check.problems or patch


def _is_part(gpus: float) -> bool:
    return 0 < gpus < 1 and round(gpus * WHOLE) / WHOLE == gpus
