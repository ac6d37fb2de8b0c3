"""JSON of a node monitor's report: `Inventory`, in TaskStatus.data.

The host side imports this module, so it uses only the standard library's json.
"""

import json
import re
from dataclasses import asdict, replace
from typing import Any

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import (
    MAX_REMOVALS,
    Gpu,
    Health,
    Inventory,
    Link,
    Program,
    Transition,
    VolumeRoot,
)
from mesos_gpu.model.nodes.gpu_use import GpuUse, TaskUse
from mesos_gpu.model.nodes.share_use import MAX_USES, ShareUse
from mesos_gpu.model.nodes.wires import common
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.wire.body import MAX_AMOUNT, parsed

VERSION = 1
MAX_PROBLEM = 300  # characters
_KEY = re.compile(r"[A-Za-z0-9+/]{43}=")
_OF_USE = ShareUse.__match_args__  # all fields; calling `fields` would make each executor import dataclasses
_AMOUNTS = tuple(name for name in _OF_USE if name not in ("task_id", "gpu_id", "problem"))
_KNOWN = frozenset(
    {
        "uuid", "model", "memory_mib", "minor", "pci_bus_id", "numa_node", "links", "health", "reason", "since",
        "warnings", "history", "compute_capability", "sharing", "index",
    }
)  # fmt: skip


def gpu_to_json(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU as a JSON object, as in a report or an inventory file. Without shares the field `sharing` is left
    out, so that older schedulers understand it."""
    sharing = {}
    if gpu.sharing is not None:
        from mesos_gpu.wire.mesos.sharing import sharing_to_json

        sharing = {"sharing": sharing_to_json(gpu.sharing)}
    return {
        "uuid": gpu.id,
        "model": gpu.model,
        "memory_mib": gpu.memory_mib,
        "minor": gpu.minor,
        "pci_bus_id": gpu.pci_bus_id,
        "numa_node": gpu.numa_node,
        "links": [{"peer": link.peer, "kind": link.kind} for link in gpu.links],
        "health": gpu.health.value,
        "reason": gpu.reason,
        "since": gpu.since,
        "warnings": list(gpu.warnings),
        "history": [transition_to_json(change) for change in gpu.history],
        "compute_capability": gpu.compute_capability,
        **({"index": gpu.index} if gpu.index is not None else {}),
        **sharing,
    }


def transition_to_json(change: Transition) -> dict[str, Any]:
    """Return a change of health as a JSON object."""
    return {"at": change.at, "old": change.old.value, "new": change.new.value, "reason": change.reason}


def transition_from_json(value: Any) -> Transition:
    """Parse a change of health from `transition_to_json`.

    Raises:
        ValueError, KeyError, TypeError: The value is not a change of health.
    """
    return Transition(float(value["at"]), Health(value["old"]), Health(value["new"]), str(value["reason"]))


def gpu_from_json(value: Any, *, health: Health = Health.UNKNOWN) -> Gpu:
    """Parse a GPU from `gpu_to_json`; an absent field `health` gets the value of `health`.

    Raises:
        ValueError: A field is missing, has another type, or is out of range; the message names it.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a GPU must be a JSON object, got {value!r}")
    unknown = sorted(set(value) - _KNOWN)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; known fields are {', '.join(sorted(_KNOWN))}")

    def field(name: str, kind: type, default: Any = None) -> Any:
        got = value.get(name, default)
        if not isinstance(got, kind) or isinstance(got, bool):
            raise ValueError(f"{name} must be of type {kind.__name__}, got {got!r}")
        if isinstance(got, int) and abs(got) >= MAX_AMOUNT:
            raise ValueError(f"{name} must be below {MAX_AMOUNT}")
        return got

    numa, capability = value.get("numa_node"), value.get("compute_capability")
    try:
        state = Health(value.get("health", health.value))
    except ValueError:
        raise ValueError(
            f"health must be one of {', '.join(h.value for h in Health)}, got {value['health']!r}"
        ) from None
    links = field("links", list, [])
    if not all(isinstance(link, dict) and {"peer", "kind"} <= set(link) for link in links):
        raise ValueError(f"links must be objects with peer and kind, got {links!r}")
    return Gpu(
        id=GpuId(field("uuid", str)),
        model=field("model", str),
        memory_mib=field("memory_mib", int),
        minor=field("minor", int),
        pci_bus_id=field("pci_bus_id", str, ""),
        numa_node=None if numa is None else field("numa_node", int),
        links=tuple(Link(GpuId(str(link["peer"])), str(link["kind"])) for link in links),
        health=state,
        reason=field("reason", str, ""),
        since=float(value.get("since", 0.0)),
        warnings=tuple(map(str, field("warnings", list, []))),
        history=tuple(map(transition_from_json, field("history", list, []))),
        compute_capability=None if capability is None else field("compute_capability", str),
        sharing=_sharing(value.get("sharing")),
        index=None if value.get("index") is None else field("index", int),
    )


def _sharing(value: Any) -> Sharing | None:
    if value is None:
        return None
    from mesos_gpu.wire.mesos.sharing import sharing_from_json  # not reached by executors of whole GPUs

    return sharing_from_json(value)


def encode(inventory: Inventory) -> bytes:
    """Encode a report as UTF-8 JSON."""
    return json.dumps(
        {
            "version": VERSION,
            "source": inventory.source,
            "driver_version": inventory.driver_version,
            "cuda_version": inventory.cuda_version,
            "isolation": inventory.isolation,
            "control_ports": inventory.control_ports,
            "volume": inventory.volume,
            "volume_problem": inventory.volume_problem,
            **_of_secrets(inventory),
            "gpus": [gpu_to_json(gpu) for gpu in inventory.gpus],
            **({"uses": [asdict(use) for use in inventory.uses[:MAX_USES]]} if inventory.uses else {}),
            **_of_cards(inventory),
            **_of_program(inventory.program),
            **({"volumes": asdict(inventory.volumes)} if inventory.volumes is not None else {}),
        },
        separators=(",", ":"),
    ).encode()


def decode(data: bytes) -> Inventory:
    """Decode a report encoded by `encode`.

    Raises:
        ValueError: The data is not a report of this version.
    """
    return inventory_from_json(parsed(data))


def inventory_from_json(value: Any, *, shares: bool = True) -> Inventory:
    """Parse a report from a JSON object; unknown fields are ignored.

    From a program without a common message version, only its release is read.

    `shares`: whether to read the parts about shares, use, and the program.

    Raises:
        ValueError: The value is not a report of this version.
    """
    if not isinstance(value, dict):
        raise ValueError(f"not a monitor report: {str(value)[:80]}")
    try:
        program = _program(value.get("program")) if shares else None
        if program is not None and not common(program.wire, program.oldest):
            return Inventory(source="", program=program)
        if value.get("version") != VERSION:
            raise ValueError(f"not a version {VERSION} monitor report: {str(value)[:80]}")
        return _inventory(value, program, shares=shares)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a report has a missing field, or one of another type: {error!r}") from error


def _inventory(value: dict[str, Any], program: Program | None, *, shares: bool) -> Inventory:
    """Return the inventory in a report of this version."""
    left_out: dict[str, Any] = {} if shares else {"sharing": None}
    gpu_uses, task_uses = _uses_of_cards(value.get("use")) if shares else ((), ())
    return Inventory(
        gpus=tuple(gpu_from_json(_known({**gpu, **left_out})) for gpu in value["gpus"]),
        source=value["source"],
        driver_version=value["driver_version"],
        cuda_version=value.get("cuda_version"),
        isolation=value.get("isolation", ""),
        control_ports=value.get("control_ports", ""),
        volume=value.get("volume"),
        volume_problem=value.get("volume_problem", ""),
        uses=tuple(map(_use, value.get("uses", ())))[:MAX_USES] if shares else (),
        gpu_uses=gpu_uses,
        task_uses=task_uses,
        secrets_key=_key(value.get("secrets_key", "")),
        secrets_problem=str(value.get("secrets_problem", ""))[:MAX_PROBLEM],
        program=program,
        volumes=_volumes(value.get("volumes")),
    )


def _known(gpu: dict[str, Any]) -> dict[str, Any]:
    """Return a GPU without fields that only newer monitors report. In inventory files unknown fields are errors."""
    return gpu if _KNOWN.issuperset(gpu) else {name: gpu[name] for name in gpu if name in _KNOWN}


def _of_program(program: Program | None) -> dict[str, Any]:
    if program is None:
        return {}
    from mesos_gpu.wire.hosts.program import program_to_json

    return {"program": program_to_json(program)}


def _program(value: Any) -> Program | None:
    if value is None:
        return None
    from mesos_gpu.wire.hosts.program import program_from_json  # not reached by executors

    return program_from_json(value)


def _of_cards(inventory: Inventory) -> dict[str, Any]:
    """Return the use of GPUs as a field of the report, if there is any."""
    if not (inventory.gpu_uses or inventory.task_uses):
        return {}
    from mesos_gpu.wire.mesos.gpu_use import uses_to_json

    return {"use": uses_to_json(inventory.gpu_uses, inventory.task_uses)}


def _uses_of_cards(value: Any) -> tuple[tuple[GpuUse, ...], tuple[TaskUse, ...]]:
    if value is None:
        return (), ()
    from mesos_gpu.wire.mesos.gpu_use import uses_from_json  # not reached by executors

    return uses_from_json(value)


def _of_secrets(inventory: Inventory) -> dict[str, str]:
    """Return the fields about secrets that are set."""
    texts = {"secrets_key": inventory.secrets_key, "secrets_problem": inventory.secrets_problem}
    return {name: text for name, text in texts.items() if text}


def _volumes(value: Any) -> VolumeRoot | None:
    if value is None:
        return None
    removed = tuple(map(str, value.get("removed", ())))[:MAX_REMOVALS]
    return VolumeRoot(str(value.get("problem", ""))[:MAX_PROBLEM], removed)


def _key(text: object) -> str:
    """Return a public key: 32 bytes in base64 (RFC 4648)."""
    if text == "" or (isinstance(text, str) and _KEY.fullmatch(text)):
        return str(text)
    raise ValueError(f"secrets_key must be 32 bytes in base64, got {text!r}")


def _use(value: Any) -> ShareUse:
    """Return the use of a share; older monitors leave out unknown amounts, and unknown fields are ignored."""
    from mesos_gpu.wire.plain import clean  # not imported by executors, which never parse uses

    use = ShareUse(**{name: value[name] for name in _OF_USE if name in value})
    if not all(_is_amount(value.get(name)) for name in _AMOUNTS):
        raise ValueError(f"amounts must be whole numbers from 0, got {value!r}")
    return replace(use, problem=clean(str(use.problem))[:MAX_PROBLEM])


def _is_amount(value: object) -> bool:
    return value is None or (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_AMOUNT
    )
