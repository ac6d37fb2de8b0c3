"""Environment that Marathon 1.11 gives to an app's tasks. Pure.

Sources: Marathon's TaskBuilder.scala, EnvironmentHelper.scala and docs/task-environment-vars.md. Later variables
replace earlier ones: first those of the app, then of the ports and the host, then the app's own `env`.
"""

import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from mesos_gpu.model.apps.app import App, EngineType
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.policy.apps.ports import wishes_of

MAX: Final = 512  # a label is left out unless its value and its variable's name are shorter
LABEL: Final = "MARATHON_APP_LABEL_"
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_]+")
_FIRST, _LAST = 1025, 65535  # range of generated ports for containers


def task_env(
    app: App,
    *,
    task_id: str,
    version: str,
    host: str,
    ports: Sequence[int | None],
    enforce_role: bool = False,
) -> dict[str, str]:
    """Return the whole environment of one launch, without secrets.

    Args:
        app: App to launch.
        task_id: Task id in Mesos.
        version: Version of the app, "2015-04-02T09:37:00.596Z".
        host: Name of the agent.
        ports: Host port of each of the app's ports, as `policy.apps.ports.choose` gives them for this app.
        enforce_role: Setting of its topmost group.
    """
    common = app_env(app, version=version, enforce_role=enforce_role)
    launch = launch_env(wishes_of(app), app.env, task_id=task_id, host=host, ports=ports)
    return {**common, "MESOS_TASK_ID": task_id, **launch, **own_env(app)}


def own_env(app: App) -> dict[str, str]:
    """Return the variables that the app itself sets, without its secrets."""
    return {name: value for name, value in app.env.items() if isinstance(value, str)}


def app_env(app: App, *, version: str, enforce_role: bool = False) -> dict[str, str]:
    """Return the variables that all tasks of a version have in common."""
    container = app.container
    image = container.docker if container and container.type is EngineType.DOCKER else None
    return {
        "MARATHON_APP_ID": app.id,
        "MARATHON_APP_VERSION": version,
        **({"MARATHON_APP_DOCKER_IMAGE": image.image} if image else {}),
        "MARATHON_APP_RESOURCE_CPUS": double(app.cpus),
        "MARATHON_APP_RESOURCE_MEM": double(app.mem_mib),
        "MARATHON_APP_RESOURCE_DISK": double(app.disk_mib),
        "MARATHON_APP_RESOURCE_GPUS": str(number_of(app.gpus * app.part_milli)),
        "MARATHON_APP_ENFORCE_GROUP_ROLE": str(enforce_role).upper(),
        **_of_labels(app.labels),
    }


def launch_env(
    wishes: Sequence[PortWish], own: Container[str], *, task_id: str, host: str, ports: Sequence[int | None]
) -> dict[str, str]:
    """Return the variables that are known only at a launch.

    Args:
        wishes: Requested ports of the app.
        own: Names that the app itself sets; they are left out.
        task_id: Task id in Mesos.
        host: Name of the agent.
        ports: Host port of each of the app's ports.
    """
    variables = {**_of_ports(wishes, ports, seed=task_id), "HOST": host}
    return {name: value for name, value in variables.items() if name not in own}


def _of_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return variables for labels; of two labels with the same variable the later counts."""
    variables = {
        _UNFIT.sub("_", key).upper(): value
        for key, value in labels.items()
        if _length(key) < MAX - len(LABEL) and _length(value) < MAX
    }
    return {
        "MARATHON_APP_LABELS": " ".join(variables),
        **{LABEL + key: value for key, value in variables.items()},
    }


def _length(text: str) -> int:
    """Return the length in UTF-16 units, as Java counts."""
    return len(text.encode("utf-16-le")) // 2


def _of_ports(wishes: Sequence[PortWish], ports: Sequence[int | None], *, seed: str) -> dict[str, str]:
    """Return the variables for ports; PORTS leaves out a port that only a container has, unless it is generated."""
    if not ports:
        return {}
    made_up = _unused({wish.number for wish in wishes} | set(ports), seed)
    listed: list[int] = []
    by_index, by_number, by_name, generated = {}, {}, {}, []
    for index, (wish, port) in enumerate(zip(wishes, ports, strict=True)):
        if port is not None:
            listed.append(port)
        elif not wish.number:
            port = next(made_up)
            generated.append(port)
        port = wish.number if port is None else port
        by_index[f"PORT{index}"] = str(port)
        by_number[f"PORT_{wish.number or port}"] = str(port)
        if wish.name is not None:
            by_name[f"PORT_{wish.name.upper()}"] = str(port)
    listed += generated
    first = {"PORT": str(listed[0])} if listed else {}
    return {**by_index, **by_number, **by_name, **first, "PORTS": ",".join(map(str, listed))}


def _unused(used: Container[int | None], seed: str) -> Iterator[int]:
    """Yield generated ports that are not in use, from a start that depends on the seed."""
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    count = _LAST - _FIRST + 1
    return (port for i in range(count) if (port := _FIRST + (start + i) % count) not in used)


def double(value: float) -> str:
    """Write a positive number or 0 as Java's Double.toString does: "128.0", "1.0E7"."""
    if not value or 1e-3 <= value < 1e7:
        return str(float(value))
    digits = Decimal(repr(float(value))).normalize().as_tuple()
    text = "".join(map(str, digits.digits))
    exponent = len(text) - 1 + int(digits.exponent)
    return f"{text[0]}.{text[1:] or '0'}E{exponent}"
