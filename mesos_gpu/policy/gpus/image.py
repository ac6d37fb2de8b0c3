"""Requirements of an image on the host's driver, and their check against a host.

Sources: the READMEs of nvidia-docker 1.0 (labels) and of NVIDIA's container toolkit (NVIDIA_REQUIRE_*: a space is OR, a
comma is AND); Mesos 1.11.0, NvidiaVolume (which images get the volume, and their paths).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.driver import (
    CUDA_LABEL,
    CUDA_OF_BRANCH,
    VERSION,
    Version,
    cuda_of,
    order,
    version_of,
)

VOLUME: Final = "nvidia_driver"
VOLUMES_LABEL: Final = "com.nvidia.volumes.needed"

_NEEDS: Final = "the image needs "
_PARTS: Final = re.compile(r"[\s,]+")
_CONDITION: Final = re.compile(r"(?P<name>[^<>=!]+)(?P<operator>[<>=!]+)(?P<value>.+)")
_OPERATORS: Final[Mapping[str, tuple[Callable[[int], bool], str]]] = {
    "=": (lambda order: order == 0, "{} exactly"),
    "!=": (lambda order: order != 0, "other than {}"),
    "<": (lambda order: order < 0, "older than {}"),
    "<=": (lambda order: order <= 0, "{} or older"),
    ">": (lambda order: order > 0, "newer than {}"),
    ">=": (lambda order: order >= 0, "{} or newer"),
}


@dataclass(frozen=True, slots=True)
class _Host:
    """Properties of a host that conditions are checked against; None if not known."""

    driver: str | None
    cuda: Version | None
    brand: str
    arch: Version | None


def wants_volume(config: ImageConfig) -> bool:
    """Return whether the driver volume must appear in the image, read-only at /usr/local/nvidia.

    NVIDIA_VISIBLE_DEVICES decides where it is set, as in Mesos: no if it is empty or `void`; yes with `none`, which
    requests the driver without a GPU. Otherwise the label, a list of volumes, decides.
    """
    devices = config.env.get("NVIDIA_VISIBLE_DEVICES")
    if devices is not None:
        names = {name.strip() for name in devices.split(",")} - {""}
        return bool(names) and "void" not in names
    return VOLUME in _volumes(config)


def unmet(
    config: ImageConfig,
    driver_version: str | None,
    cuda_version: str | None,
    *,
    brand: str = "unknown",
    arch: str | None = None,
) -> str | None:
    """Return why the image cannot run on this host's driver; None if it can.

    All of NVIDIA_REQUIRE_* must hold, and CUDA must be as new as the label com.nvidia.cuda.version says.
    NVIDIA_DISABLE_REQUIRE switches both off. A condition that is unknown or malformed does not hold: the old NVIDIA
    runtime refuses such a container, the new one skips the condition, and here the image is refused unless another
    alternative holds.

    Args:
        config: Configuration of the image, overridden by the job's own variables if a job may switch the check off.
        driver_version: Version such as "535.183.01"; None if the host has no driver, so that no condition holds.
        cuda_version: Newest CUDA that the driver runs, as reported by NVML, "12.2"; None to derive it from the driver's
            branch.
        brand: Brand as named by NVML ("tesla", "geforce"); images of NVIDIA also list "unknown" as a brand.
        arch: Compute capability of the GPUs, "8.0"; None if not known.
    """
    strange = sorted(_volumes(config) - {VOLUME})
    if strange:
        names = ", ".join(strange)
        return f"the image needs volume {names}, which this platform does not have"
    if config.env.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true"):
        return None
    cuda = version_of(cuda_version) or cuda_of(driver_version)
    host = _Host(driver_version, cuda, brand, version_of(arch))
    reasons = (_unmet_requirement(text, host) for text in _requirements(config))
    return next((why for why in reasons if why), None)


@dataclass(frozen=True, slots=True)
class DriverNeed:
    """Driver that an image needs where a host's is too old."""

    least: str  # oldest accepted driver that is newer than the host's, "550"
    what: str  # requirement in the image's terms, "CUDA 12.4 or newer"


def needed_driver(
    config: ImageConfig, driver_version: str | None, cuda_version: str | None = None
) -> DriverNeed | None:
    """Return the driver that an image needs instead of a host's; None if this one suffices, or no newer one would.

    Candidates are the known branches and the versions that the image names. An image may also accept some older branch
    ("driver>=470,driver<471"): a minimum cannot express that, so the job waits for a newer driver.
    """
    why = unmet(config, driver_version, cuda_version)
    if why is None:
        return None
    has = version_of(driver_version) or ()
    candidates = {
        version_of(text) or (): text
        for text in (*(str(branch) for branch, _ in CUDA_OF_BRANCH), *_drivers_named(config))
    }
    newer = (candidates[version] for version in sorted(candidates) if order(version, has) > 0)
    least = next((text for text in newer if unmet(config, text, None) is None), None)
    return DriverNeed(least, why.removeprefix(_NEEDS).partition(";")[0]) if least else None


def _drivers_named(config: ImageConfig) -> set[str]:
    """Return the driver versions that the image's conditions name."""
    conditions = (_CONDITION.fullmatch(part) for text in _requirements(config) for part in _PARTS.split(text))
    named = {match["value"] for match in conditions if match and match["name"].lower() == "driver"}
    return {text for text in named if VERSION.fullmatch(text)}


def _volumes(config: ImageConfig) -> set[str]:
    """Return the names of the volumes that an image requests."""
    return set(config.labels.get(VOLUMES_LABEL, "").split())


def _requirements(config: ImageConfig) -> Iterator[str]:
    """Yield the expressions that must hold; NVIDIA_REQUIRE_JETPACK is skipped, as it is for boards without NVML."""
    label = config.labels.get(CUDA_LABEL, "").strip()
    if label:
        yield "cuda>=" + ".".join(label.split(".")[:2])  # an image of CUDA 9.0.176 runs on every CUDA 9.0
    for name, value in sorted(config.env.items()):
        if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK"):
            yield value


def _unmet_requirement(text: str, host: _Host) -> str | None:
    """Return why no alternative holds: the reason of the first one, which images list as the main one."""
    reasons = []
    for alternative in text.split():
        conditions = [part for part in alternative.split(",") if part]
        why = next((why for part in conditions if (why := _unmet_condition(part, host))), None)
        if why is None:
            return None
        reasons.append(why)
    if not reasons:
        return None
    others = ", nor is another alternative met" if len(reasons) > 1 else ""
    return f"{_NEEDS}{reasons[0]}{others}"


def _unmet_condition(text: str, host: _Host) -> str | None:
    """Return why a condition such as `driver>=470` does not hold on the host; None if it holds."""
    match = _CONDITION.fullmatch(text)
    if not match or match["operator"] not in _OPERATORS:
        return f"{text!r}, which cannot be read"
    name, value = match["name"].lower(), match["value"]
    if name == "brand":
        return _unmet_brand(match["operator"], value, host)
    facts: Mapping[str, tuple[str, Version | None, str]] = {
        "cuda": ("CUDA", host.cuda, _says_cuda(host)),
        "driver": ("driver", version_of(host.driver), _says_driver(host)),
        "arch": ("compute capability", host.arch, _says_arch(host)),
    }
    if name not in facts:
        return f"{text!r}, a condition that this platform does not know"
    if not VERSION.fullmatch(value):
        return f"{text!r}, which cannot be read: {value!r} is not a version"
    noun, has, says = facts[name]
    holds, words = _OPERATORS[match["operator"]]
    if has is not None and holds(order(has, version_of(value) or ())):
        return None
    return f"{noun} {words.format(value)}; {says}"


def _unmet_brand(operator: str, value: str, host: _Host) -> str | None:
    """Return why a condition on the GPU's brand does not hold; None if it holds."""
    if operator not in ("=", "!="):
        return f"'brand{operator}{value}', which cannot be read: brands have no order"
    if (host.brand.lower() == value.lower()) == (operator == "="):
        return None
    need = f"a GPU of brand {value}" if operator == "=" else f"a GPU of another brand than {value}"
    return f"{need}; this host's is {host.brand}"


def _says_driver(host: _Host) -> str:
    return f"this host has driver {host.driver}" if host.driver else "this host has no NVIDIA driver"


def _says_cuda(host: _Host) -> str:
    if not host.driver:
        return "this host has no NVIDIA driver"
    if host.cuda is None:
        return f"the CUDA version that this host's driver {host.driver} runs is unknown"
    return f"this host's driver {host.driver} runs CUDA {'.'.join(map(str, host.cuda))} at most"


def _says_arch(host: _Host) -> str:
    if host.arch is None:
        return "that of this host's GPUs is not known"
    return f"this host's GPUs have {'.'.join(map(str, host.arch))}"
