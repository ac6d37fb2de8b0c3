"""Resolution of host and GPU names: full names, unique short ones, and suggestions for unknown ones."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.engine.reading.nodes import gpu_status, gpu_statuses
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.drain import Target

_MAX_NAMED: Final = 5
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")  # cannot be shortened to a first part


def host_of(view: View, wanted: str) -> str:
    """Return the host with a name, with a name that begins with these parts (`node1`), or with an agent of this id.

    Raises:
        NotFound: There is no such host.
        Refusal: The name fits several hosts.
    """
    node = view.nodes.get(AgentId(wanted))
    if node is not None:
        return node.hostname
    hostnames = {node.hostname for node in view.nodes.values()}
    hostnames |= {drain.name for drain in view.drains.values() if drain.target is Target.NODE}
    hosts = _hosts(hostnames, wanted)
    if not hosts:
        raise NotFound(
            f"there is no node {wanted}",
            remedy=_meant(wanted, (form for name in hostnames for form in _forms(name)), "nodes"),
        )
    return _only(wanted, "nodes", hosts, "give more of the name")


def gpu_of(view: View, wanted: str) -> GpuId:
    """Return the GPU with a UUID, with a UUID that begins so, or at HOST:INDEX (for HOST see `host_of`).

    Raises:
        NotFound: There is no such GPU.
        Refusal: The name fits several GPUs.
    """
    if gpu_status(view, GpuId(wanted)) is not None:
        return GpuId(wanted)
    places = {
        GpuId(s.gpu.id): (s.node.hostname, "" if s.gpu.index is None else str(s.gpu.index))
        for s in gpu_statuses(view)
    }
    gpu_ids = {*places, *(GpuId(drain.name) for drain in view.drains.values() if drain.target is Target.GPU)}
    if wanted in gpu_ids:
        return GpuId(wanted)
    host, colon, index = wanted.rpartition(":")
    hosts = set(_hosts({name for name, _ in places.values()}, host)) if colon else set()
    ids = [id for id, (name, number) in places.items() if name in hosts and number == index and index]
    ids = ids or [id for id in sorted(gpu_ids) if id.startswith(wanted)]
    if not ids:
        names = [
            *gpu_ids,
            *(f"{form}:{number}" for name, number in places.values() if number for form in _forms(name)),
        ]
        raise NotFound(f"there is no GPU {wanted}", remedy=_meant(wanted, names, "GPUs"))
    return GpuId(
        _only(wanted, "GPUs", ids, "give more of the host name" if colon else "give more of the UUID")
    )


def _hosts(known: Collection[str], wanted: str) -> list[str]:
    """Return the hosts with a name, or with a name that begins with these parts."""
    if wanted in known:
        return [wanted]
    return sorted(name for name in known if name.startswith(f"{wanted}.") and not _ADDRESS.fullmatch(name))


def _only(wanted: str, what: str, matching: Sequence[str], remedy: str) -> str:
    """Return the only match.

    Raises:
        Refusal: There are several.
    """
    if len(matching) > 1:
        shown = ", ".join(matching[:_MAX_NAMED]) + (" …" if len(matching) > _MAX_NAMED else "")
        raise Refusal(409, "ambiguous", f"{wanted} names {len(matching)} {what}: {shown}", remedy=remedy)
    return matching[0]


def _forms(hostname: str) -> set[str]:
    return {hostname} if _ADDRESS.fullmatch(hostname) else {hostname, hostname.split(".")[0]}


def _meant(wanted: str, known: Iterable[str], what: str) -> str:
    """Return a remedy with known names that are similar to an unknown one."""
    near = difflib.get_close_matches(wanted, sorted(set(known)), n=3, cutoff=0.7)
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{suggestion}list the {what} with: mesos-gpu {what.lower()}"
