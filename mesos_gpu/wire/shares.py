"""Numbers of GPUs and parts of one in JSON, and what a request for a share must be as a whole. Pure."""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.jobs.fields import Field, Gpus
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.model.nodes.gpu_names import models_of, unknown
from mesos_gpu.model.shares.units import WHOLE, milli_of
from mesos_gpu.wire.checking import is_number, show

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
