"""Compute shares by NVIDIA MPS: the daemon for a card and user, and what a task is given to reach it."""

import pwd
from collections.abc import Mapping, Sequence
from dataclasses import replace

from isolator.devices import facts
from isolator.devices.rules import Rule, nvidia_devices, rules_of
from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.share_claims import CardTrace
from isolator.shares import card
from isolator.shares.mps import ability
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.daemon import Domain, Host
from isolator.shares.tenancy import Given, Tenancy
from mesos_gpu.adapters.mps_control import PROGRAM, Limits
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.share import EVERYBODY, Share


class ByMps:
    """`Measure` that limits compute by an MPS daemon.

    Args:
        host: MPS settings of this host. By default those of the executor's environment.
    """

    def __init__(self, host: Host | None = None) -> None:
        self._host = host

    def lacks(self, tenancy: Tenancy) -> str:
        """Return why this host cannot serve the task by MPS; "" if it can.

        Checked are the program, the user, and, for a server of several users, the host's permission.
        """
        several = tenancy.share.domain == EVERYBODY
        user = tenancy.user if several else tenancy.share.domain
        try:
            uid = _uid(user) if user else None
        except KeyError:
            return f"it has no user {user}"
        why = ability.refusal(uid, len(tenancy.gpus))
        if several and not why:
            why = ability.no_users(tenancy.own, self._of(tenancy))
        return why or ("" if self._of(tenancy).program else f"{PROGRAM} is not installed")

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Return no traces: the task's MPS namespace ends with the daemon."""
        return ()

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Return the ledger row of the MPS daemon for the task's card and user."""
        return tuple(CardTrace(gpu.id, mps.KIND, str(domain_of(tenancy, gpu))) for gpu in tenancy.gpus)

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Join the task to the daemon (`mps.join`); add a note if it gets less than the percentage that was
        granted.
        """
        (gpu,) = tenancy.gpus
        cap = ability.cap_for(tenancy.share, gpu.compute_capability, tenancy.own)
        joined = mps.join(
            self._of(tenancy),
            domain_of(tenancy, gpu),
            tenancy.task,
            limits_of(tenancy.share, gpu, tenancy.own),
            self._others(tenancy, gpu, ledger),
            _rules(tenancy, gpu),
        )
        notes = (f"MPS lets it use {cap.percent} % of {gpu.id}: {cap.note}",) if cap.note else ()
        return Given(
            joined.env, tuple((source, target, False) for source, target in joined.mounts), notes=notes
        )

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Set other limits for the task; protocol 2 cannot change those of a running client.

        Raises:
            Conflict: The daemon has protocol 2, and the limits differ.
        """
        (gpu,) = tenancy.gpus
        domain, mine = domain_of(tenancy, gpu), limits_of(tenancy.share, gpu, tenancy.own)
        if domain.protocol == 2:
            if limits_of(before, gpu, tenancy.own) == mine:
                return
            raise Conflict(
                "what MPS of protocol 2 lets a task use cannot change while it runs",
                remedy="restart it with the other share",
            )
        daemon = self._of(tenancy).mps(domain)
        daemon.open(domain.gpu, domain.uid, mps.most_of((mine, *self._others(tenancy, gpu, ledger).values())))
        daemon.admit(tenancy.task, mine)

    def _of(self, tenancy: Tenancy) -> Host:
        host = self._host or mps.host_of(tenancy.own)
        return replace(host, cards=max(len(tenancy.inventory.gpus), 1))

    def _others(self, tenancy: Tenancy, gpu: Gpu, ledger: Ledger) -> dict[str, Limits]:
        return {
            task: own for task, own in limits_on(ledger, gpu, tenancy.own).items() if task != tenancy.task
        }


def limits_on(ledger: Ledger, gpu: Gpu, own: Mapping[str, str]) -> dict[str, Limits]:
    """Return the MPS limits of each task that shares a card by MPS, by task id.

    Args:
        ledger: The ledger of this host.
        gpu: The shared card.
        own: Environment of an executor or a monitor.
    """
    shares = {h.task: h.share for h in card.sharers(ledger, gpu.id)}
    return {
        task: limits_of(share, gpu, own)
        for task, share in shares.items()
        if share is not None and share.method.has_domain
    }


def limits_of(share: Share, gpu: Gpu, own: Mapping[str, str]) -> Limits:
    """Return the limits of a share in the terms of MPS.

    Raises:
        Unavailable, BadConfiguration: As for `ability.cap_for`.
    """
    return Limits(ability.cap_for(share, gpu.compute_capability, own).percent, share.memory_max_mib)


def domain_of(tenancy: Tenancy, gpu: Gpu) -> Domain:
    """Return the MPS domain of a task: its card, and its user or all users.

    Raises:
        Unavailable: The user does not exist on this host.
    """
    name = tenancy.share.domain
    try:
        uid = 0 if name == EVERYBODY else _uid(name)
    except KeyError:
        raise Unavailable(
            f"this host has no user {name}", remedy="create the user, or keep such tasks off this host"
        ) from None
    return Domain(gpu.id, uid, 3 if tenancy.share.method.compute_by == "mps3" else 2)


def _uid(name: str) -> int:
    return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid


def _rules(tenancy: Tenancy, gpu: Gpu) -> Sequence[Rule] | None:
    """Return device rules that let the daemon and its servers open only this card; None if isolation is off."""
    if facts.isolation_name(tenancy.own) == "off":
        return None
    return rules_of(nvidia_devices(facts.read_driver(env=tenancy.own), [gpu.minor]))
