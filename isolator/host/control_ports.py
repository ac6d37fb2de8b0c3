"""Which ports a task of this host must not reach: those that command the cluster, and what the operator lists.

Lean: the executor imports it.
"""

import _socket
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.control import ControlPort

SETTING: Final = "MESOS_GPU_CONTROL_PORTS"
OFF: Final = "off"


@dataclass(frozen=True, slots=True)
class Denial:
    """A port that a task does not reach, by TCP or UDP. `address`: an IP address; None: any, of any host."""

    port: int
    address: str | None = None


def is_off(env: Mapping[str, str]) -> bool:
    """Whether the operator lets tasks of this host reach every port, or does not isolate them at all."""
    return env.get(SETTING) == OFF or env.get("MESOS_GPU_ISOLATION") == "off"


def listed(env: Mapping[str, str]) -> tuple[Denial, ...]:
    """The denials that MESOS_GPU_CONTROL_PORTS adds to the agents', the master's and the scheduler's ports: PORT,
    ADDRESS:PORT or [ADDRESS]:PORT, by commas.

    Raises:
        BadConfiguration: One of them cannot be.
    """
    words = () if is_off(env) else env.get(SETTING, "").split(",")
    return tuple(_parsed(word) for word in filter(None, map(str.strip, words)))


def _parsed(word: str) -> Denial:
    address, _, port = word.rpartition(":")
    text = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise _bad(word, f"{port!r} is no port")
    if text and (_family(text) is None or (":" in text) != (text != address)):
        raise _bad(
            word, f"{address!r} is no IP address" if _family(text) is None else "IPv6 goes in brackets"
        )
    return _denial(int(port), text)


def _bad(word: str, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"{SETTING} names {word!r}: {why}",
        remedy=f"name PORT, ADDRESS:PORT or [ADDRESS]:PORT, by commas; or set it to {OFF}",
    )


def _family(address: str) -> int | None:
    for family in (_socket.AF_INET, _socket.AF_INET6):
        try:
            _socket.inet_pton(family, address)
        except OSError:
            continue
        return family
    return None


def _denial(port: int, address: str) -> Denial:
    """An address of this host has other names (0.0.0.0, all of 127/8, the host's others): there it is the port."""
    return Denial(port, address if address and not _is_of_this_host(address) else None)


def _is_of_this_host(address: str) -> bool:
    family = _family(address)
    if family is None:
        return False
    with contextlib.closing(_socket.socket(family, _socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def denials(
    env: Mapping[str, str], known: Iterable[ControlPort], access: Iterable[str], boot_id: str
) -> tuple[Denial, ...]:
    """All that a task is denied, each once; none, if the operator's word is `off`.

    Args:
        env: The executor's environment.
        known: What the scheduler knows of.
        access: Names of what the task may reach all the same.
        boot_id: Of this host.

    Raises:
        BadConfiguration: MESOS_GPU_CONTROL_PORTS holds what cannot be.
    """
    if is_off(env):
        return ()
    given = frozenset(access)
    own = env.get("MESOS_AGENT_ENDPOINT", "").rpartition(":")[2]
    agents = [ControlPort("agent", int(own))] if own.isdigit() else []
    denied = {
        _denial(each.port, each.address)
        for each in (*agents, *known)
        if each.name not in given and each.boot_id in ("", boot_id)
    }
    denied |= set(listed(env))
    ports = {denial.port for denial in denied if denial.address is None}
    return tuple(
        sorted(
            (d for d in denied if d.address is None or d.port not in ports),
            key=lambda d: (d.port, d.address or ""),
        )
    )
