"""Rules for changing the access document: no one grants more than they have, and someone can always change it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.access.decide import Rights, are_wider, grants_by, grants_of
from mesos_gpu.access.patterns import all_covered
from mesos_gpu.access.rights import ACCESS_WRITE, APP_WRITE, JOB_RUN
from mesos_gpu.access.roles import ADMIN, BUILT_IN, roles_of
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from mesos_gpu.model.access.document import EVERYTHING, AccessDocument, Binding, Limits, Role

#: Rights by which limits on jobs and apps are found; limits of a role without them have no effect.
_LIMITED: Final = (JOB_RUN, APP_WRITE)

Line = tuple[Binding, Role]


def has_everything(rights: Rights) -> bool:
    """Return whether the caller may do everything."""
    return _may_give(rights, Binding(), ADMIN)


def overreach(rights: Rights, old: AccessDocument, new: AccessDocument) -> list[tuple[str, str]]:
    """Return what a new document would grant beyond the caller's own rights, as JSON pointers with reasons.

    Existing grants may stay. Only a caller who may do everything may change `unix_users` and `shares`.
    """
    if has_everything(rights):
        return []
    before = {line for _, line in lines_of(old)}
    wrong = [
        (
            f"/bindings/{index}",
            f"grants the role {role.name}, which has rights that you do not have for its queues and apps",
        )
        for index, (binding, role) in lines_of(new)
        if (binding, role) not in before and not _may_give(rights, binding, role)
    ]
    for field in ("unix_users", "shares"):
        if dict(getattr(new, field)) != dict(getattr(old, field)):
            wrong.append((f"/{field}", "may be changed only by callers with all rights"))
    return wrong


def lines_of(document: AccessDocument) -> list[tuple[int, Line]]:
    """Return each role of each binding, with the index of the binding and the binding without other roles."""
    roles = roles_of(document)
    return [
        (index, (replace(binding, roles=()), roles[name]))
        for index, binding in enumerate(document.bindings)
        for name in binding.roles
        if name in roles
    ]


def givers(document: AccessDocument) -> list[int]:
    """Return the indexes of the bindings whose names and groups may change the document; without any, only root on the
    scheduler's host may."""
    return sorted(
        {
            index
            for index, (binding, role) in lines_of(document)
            if (binding.names or binding.groups) and Rights(_one(binding, role), _ANYONE).may(ACCESS_WRITE)
        }
    )


def is_narrower(wide: Narrowing | None, narrow: Narrowing) -> bool:
    """Return whether a restriction allows no more than another; None stands for no restriction."""
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
    """Return whether limits allow no more than other limits."""
    return (
        all_covered(wide.users, limits.users)
        and all_covered(wide.images, limits.images)
        and _are_below(limits.volumes, wide.volumes)
        and limits.highest_priority <= wide.highest_priority
        and (limits.must_be_preemptible or not wide.must_be_preemptible)
    )


def _are_below(directories: Sequence[str], among: Sequence[str]) -> bool:
    return EVERYTHING in among or all(
        any(directory == top or directory.startswith(f"{top.rstrip('/')}/") for top in among)
        for directory in directories
    )
