"""Who may give rights to others: nobody more than he has, and no document that leaves nobody to mend it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.access.decide import Rights, are_wider, grants_by, grants_of
from mesos_gpu.access.patterns import all_covered
from mesos_gpu.access.rights import ACCESS_WRITE, APP_WRITE, JOB_RUN
from mesos_gpu.access.roles import ADMIN, BUILT_IN, roles_of
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from mesos_gpu.model.access.document import EVERYTHING, AccessDocument, Binding, Limits, Role

#: The rights with which limits of jobs and apps are looked up: of a role without them, its limits allow nothing.
_LIMITED: Final = (JOB_RUN, APP_WRITE)

Line = tuple[Binding, Role]


def has_everything(rights: Rights) -> bool:
    """Whether there is nothing that the caller may not do."""
    return _may_give(rights, Binding(), ADMIN)


def overreach(rights: Rights, old: AccessDocument, new: AccessDocument) -> list[tuple[str, str]]:
    """What a new document would give that the caller has not himself: JSON pointers, and what it is.

    What the old one gives already may stay. Who has not everything leaves `unix_users` and `shares` as they are.
    """
    if has_everything(rights):
        return []
    before = {line for _, line in lines_of(old)}
    wrong = [
        (
            f"/bindings/{index}",
            f"gives {role.name}, which has more than you have yourself for what it is bound to",
        )
        for index, (binding, role) in lines_of(new)
        if (binding, role) not in before and not _may_give(rights, binding, role)
    ]
    for field in ("unix_users", "shares"):
        if dict(getattr(new, field)) != dict(getattr(old, field)):
            wrong.append((f"/{field}", "is for those to change who may do everything"))
    return wrong


def lines_of(document: AccessDocument) -> list[tuple[int, Line]]:
    """Each role of each binding, with the binding's place; the binding without its other roles."""
    roles = roles_of(document)
    return [
        (index, (replace(binding, roles=()), roles[name]))
        for index, binding in enumerate(document.bindings)
        for name in binding.roles
        if name in roles
    ]


def givers(document: AccessDocument) -> list[int]:
    """The places of the bindings whose names and groups may change the document; none: only root on the scheduler's
    host may."""
    return sorted(
        {
            index
            for index, (binding, role) in lines_of(document)
            if (binding.names or binding.groups) and Rights(_one(binding, role), _ANYONE).may(ACCESS_WRITE)
        }
    )


def is_narrower(wide: Narrowing | None, narrow: Narrowing) -> bool:
    """Whether what a proof is good for is no more than what another one is; None: it is good for all."""
    return wide is None or are_wider(grants_by(wide), grants_by(narrow))


_ANYONE: Final = Caller("anyone", proof=Proof.TOKEN)


def _one(binding: Binding, role: Role) -> AccessDocument:
    own = () if role.name in BUILT_IN else (role,)
    return AccessDocument(
        roles=own, bindings=(replace(binding, names=(EVERYTHING,), groups=(), roles=(role.name,)),)
    )


def _may_give(rights: Rights, binding: Binding, role: Role) -> bool:
    grants = grants_of([(binding, role)])
    return rights.holds(grants) and all(
        _is_within(role.limits, rights.limits_over(right, grant))
        for right in _LIMITED
        for grant in grants.get(right, ())
    )


def _is_within(limits: Limits, wide: Limits) -> bool:
    """Whether limits allow no more than wider ones."""
    return (
        all_covered(wide.users, limits.users)
        and all_covered(wide.images, limits.images)
        and _are_below(limits.volumes, wide.volumes)
        and limits.highest_priority <= wide.highest_priority
        and (limits.must_be_preemptible or not wide.must_be_preemptible)
    )


def _are_below(directories: Sequence[str], among: Sequence[str]) -> bool:
    return EVERYTHING in among or all(
        any(each == top or each.startswith(f"{top.rstrip('/')}/") for top in among) for each in directories
    )
