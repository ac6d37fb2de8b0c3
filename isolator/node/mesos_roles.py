"""What a master's roles and quotas mean for who shares its GPUs with others.

Sources: docs/{quota,roles}.md of Mesos 1.11, and MESOS-5377 of why GPUs are left out of fair shares.
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
    """What an operator should know of roles.

    Raises:
        OSError: It does not answer.
        ValueError, KeyError, TypeError: What it answers is no list of roles.
    """
    status, body = master.ask("GET", "/roles", b"", master.authorization)
    if status != 200:
        text = f"{master.endpoint} does not tell its roles: {status}"
        yield Finding(CHECK, Level.WARN, text, f"let the principal of --mesos-credentials view roles; {DOCS}")
        return
    roles = roles_of(parsed(body)["roles"])
    findings = [*_refused(master, roles), *_shares(flags, roles), *_quotas(roles)]
    yield from findings
    if not findings:
        yield Finding(CHECK, Level.OK, f"{len(roles)} roles; nothing of them holds offers of GPUs back")


def _refused(master: Daemon, roles: Mapping[str, Role]) -> Iterator[Finding]:
    """A master leaves out of its answers what its lists refuse, and answers as if all was well."""
    status, body = master.ask("GET", "/frameworks", b"", master.authorization)
    if status != 200:
        text = f"{master.endpoint} does not tell its frameworks: {status}"
        remedy = f"let the principal of --mesos-credentials view frameworks; {DOCS}"
        yield Finding(CHECK, Level.WARN, text, remedy)
        return
    names: dict[str, set[str]] = {}
    for each in parsed(body)["frameworks"]:
        for role in each.get("roles") or [each.get("role", "*")]:
            names.setdefault(role, set()).add(str(each["name"]))
    for role in sorted({*names} - {*roles}):
        text = f"lists of {master.endpoint} refuse the role {role} of {', '.join(sorted(names[role]))}"
        yield Finding(CHECK, Level.WARN, f"{text}: nothing of it can be said", _VIEW_ROLES)
    if not roles and not names:
        text = f"{master.endpoint} tells no role and no framework: its lists refuse them, or nobody is registered"
        yield Finding(CHECK, Level.WARN, text, _VIEW_ROLES)


def _shares(flags: Mapping[str, str], roles: Mapping[str, Role]) -> Iterator[Finding]:
    """A framework that has many GPUs must not be last for processors."""
    if GPUS in flags.get(_EXCLUDED, "").split(","):
        return
    if len({each for role in roles.values() for each in role.frameworks}) > 1:
        text = "GPUs count in the fair shares of roles: who has many is offered processors last, and cannot use them"
        yield Finding(CHECK, Level.WARN, text, f"start masters with --{_EXCLUDED}=gpus")


def _quotas(roles: Mapping[str, Role]) -> Iterator[Finding]:
    for role in roles.values():
        if role.guarantees:
            text = f"role {role.name} has a guarantee of Mesos: what it does not use is offered to nobody"
            yield Finding(
                CHECK, Level.WARN, text, "have limits for other roles instead: mesos-gpu mesos quota plan"
            )
        below = sorted(name for name in roles if name.startswith(f"{role.name}/"))
        if role.limits and below:
            text = f"the limit of role {role.name} does not hold for {', '.join(below)} when offers are made"
            yield Finding(
                CHECK, Level.WARN, text, "have roles without a slash: the tree of queues is the scheduler's"
            )
        most = role.limits.get(GPUS)
        if most is not None and role.used.get(GPUS, 0.0) >= most:
            text = f"role {role.name} has its limit of {most:g} GPUs: it is offered no more"
            yield Finding(
                CHECK, Level.WARN, text, "mesos-gpu mesos quota plan says what limits follow from the tree"
            )
