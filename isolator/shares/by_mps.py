"""Compute by MPS, as a measure of a share: the daemon of its card and user, and what the task is given to reach it."""

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
    """`Measure` by a daemon of MPS. `host`: None: what the executor's environment says of this host."""

    def __init__(self, host: Host | None = None) -> None:
        """Nothing is asked yet."""
        self._host = host

    def lacks(self, tenancy: Tenancy) -> str:
        """See the program, and the user; and that this host permits several users, where it is not one's alone."""
        several = tenancy.share.domain == EVERYBODY
        who = tenancy.user if several else tenancy.share.domain
        try:
            uid = _uid(who) if who else None
        except KeyError:
            return f"it has no user {who}"
        why = ability.refusal(uid, len(tenancy.gpus))
        if several and not why:
            why = ability.no_users(tenancy.own, self._of(tenancy))
        return why or ("" if self._of(tenancy).program else f"{PROGRAM} is not installed")

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Nothing of the task is left: its namespace ends with the daemon."""
        return ()

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """The daemon of its card, for its user."""
        return tuple(CardTrace(gpu.id, mps.KIND, str(domain_of(tenancy, gpu))) for gpu in tenancy.gpus)

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Join the daemon, as `mps.join`; say so if the percentage is less than what was granted."""
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
        """Set the namespace of a task; by protocol 2 the limits of a client that runs stay as they are."""
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
    """What each task of a card may use by MPS, as the ledger says.

    Args:
        ledger: Of this host.
        gpu: The card.
        own: The environment of an executor or a monitor.
    """
    shares = {h.task: h.share for h in card.sharers(ledger, gpu.id)}
    return {
        task: limits_of(share, gpu, own)
        for task, share in shares.items()
        if share is not None and share.method.has_domain
    }


def limits_of(share: Share, gpu: Gpu, own: Mapping[str, str]) -> Limits:
    """What a share may use, as MPS is told.

    Raises:
        Unavailable, BadConfiguration: As `ability.cap_for`.
    """
    return Limits(ability.cap_for(share, gpu.compute_capability, own).percent, share.memory_max_mib)


def domain_of(tenancy: Tenancy, gpu: Gpu) -> Domain:
    """The card and the user of a task, or all users.

    Raises:
        Unavailable: This host does not know the user.
    """
    name = tenancy.share.domain
    try:
        uid = 0 if name == EVERYBODY else _uid(name)
    except KeyError:
        raise Unavailable(
            f"this host has no user {name}", remedy="make it, or place the task elsewhere"
        ) from None
    return Domain(gpu.id, uid, 3 if tenancy.share.method.compute_by == "mps3" else 2)


def _uid(name: str) -> int:
    return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid


def _rules(tenancy: Tenancy, gpu: Gpu) -> Sequence[Rule] | None:
    """The daemon and its servers open this card only; None: isolation is off."""
    if facts.isolation_name(tenancy.own) == "off":
        return None
    return rules_of(nvidia_devices(facts.read_driver(env=tenancy.own), [gpu.minor]))
