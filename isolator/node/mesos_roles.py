"""Check of a Mesos master's roles and quotas for clusters where several frameworks share GPUs.

Sources: docs/{quota,roles}.md of Mesos 1.11; MESOS-5377 on why GPUs are left out of fair shares.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from isolator.node.findings import Finding, Level
from isolator.node.mesos_access import DOCS, Daemon
from mesos_gpu.model.nodes.role import GPUS, Role
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos.operator.quotas import roles_of

CHECK: Final = "roles"
_VIEW_ROLES: Final = (
    "let the principal of --mesos-credentials view roles and frameworks: view_roles and view_frameworks in the file "
    f"of --acls; {DOCS}"
)
_EXCLUDED: Final = "fair_sharing_excluded_resource_names"


def looked_at(master: Daemon, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings on a master's roles.

    Raises:
        OSError: The master does not answer.
        ValueError, KeyError, TypeError: The answer is not a list of roles.
    """
    status, body = master.ask("GET", "/roles", b"", master.authorization)
    if status != 200:
        text = f"{master.endpoint} does not list its roles: status {status}"
        yield Finding(CHECK, Level.WARN, text, f"let the principal of --mesos-credentials view roles; {DOCS}")
        return
    roles = roles_of(parsed(body)["roles"])
    findings = [*_refused(master, roles), *_shares(flags, roles), *_quotas(roles)]
    yield from findings
    if not findings:
        yield Finding(CHECK, Level.OK, f"{len(roles)} roles; none of them holds back offers of GPUs")


def _refused(master: Daemon, roles: Mapping[str, Role]) -> Iterator[Finding]:
    """Yield findings on roles that the master's access control lists hide: it leaves them out without an
    error.
    """
    status, body = master.ask("GET", "/frameworks", b"", master.authorization)
    if status != 200:
        text = f"{master.endpoint} does not list its frameworks: status {status}"
        remedy = f"let the principal of --mesos-credentials view frameworks; {DOCS}"
        yield Finding(CHECK, Level.WARN, text, remedy)
        return
    names: dict[str, set[str]] = {}
    for framework in parsed(body)["frameworks"]:
        for role in framework.get("roles") or [framework.get("role", "*")]:
            names.setdefault(role, set()).add(str(framework["name"]))
    for role in sorted({*names} - {*roles}):
        text = f"access control lists of {master.endpoint} hide the role {role} of {', '.join(sorted(names[role]))}"
        yield Finding(CHECK, Level.WARN, f"{text}: it cannot be checked", _VIEW_ROLES)
    if not roles and not names:
        text = f"{master.endpoint} lists no roles: its access control lists hide them, or no framework is registered"
        yield Finding(CHECK, Level.WARN, text, _VIEW_ROLES)


def _shares(flags: Mapping[str, str], roles: Mapping[str, Role]) -> Iterator[Finding]:
    """Warn if GPUs count in Mesos' fair shares: a framework with many GPUs would be the last to get
    processors.
    """
    if GPUS in flags.get(_EXCLUDED, "").split(","):
        return
    if len({framework for role in roles.values() for framework in role.frameworks}) > 1:
        text = "GPUs count in the fair shares of roles: one with many is offered processors last, and cannot use them"
        yield Finding(CHECK, Level.WARN, text, f"start masters with --{_EXCLUDED}=gpus")


def _quotas(roles: Mapping[str, Role]) -> Iterator[Finding]:
    """Yield findings on quotas of roles that hold back offers of GPUs."""
    for role in roles.values():
        if role.guarantees:
            text = f"role {role.name} has a Mesos guarantee: what it does not use is offered to no role"
            yield Finding(
                CHECK, Level.WARN, text, "set limits for other roles instead: mesos-gpu mesos quota plan"
            )
        below = sorted(name for name in roles if name.startswith(f"{role.name}/"))
        if role.limits and below:
            text = f"the limit of role {role.name} does not hold for {', '.join(below)} when offers are made"
            yield Finding(
                CHECK, Level.WARN, text, "use roles without a slash: the scheduler has its own tree of queues"
            )
        most = role.limits.get(GPUS)
        if most is not None and role.used.get(GPUS, 0.0) >= most:
            text = f"role {role.name} has reached its limit of {most:g} GPUs: it is offered no more"
            yield Finding(
                CHECK,
                Level.WARN,
                text,
                "mesos-gpu mesos quota plan shows the limits that follow from the tree of queues",
            )
