"""JSON of the access document, checked as a whole with all problems at once; pure functions."""

import difflib
import re
from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Final

import msgspec

from mesos_gpu.access.roles import BUILT_IN
from mesos_gpu.model.access.document import EVERYTHING, AccessDocument, Binding, Limits, Role, Shared
from mesos_gpu.model.jobs.fields import QUEUE, USER
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY
from mesos_gpu.wire.access import fields
from mesos_gpu.wire.checking import Check, Problem, escaped, show

MAX_ROLES: Final = 200
MAX_BINDINGS: Final = 1000
MAX_WHO: Final = 1000  # names, or groups, of one binding
MAX_ENTRIES: Final = 10_000  # entries of `unix_users`, and of `shares`
MAX_VERSION: Final = 1 << 53
MAX_BYTES: Final = 1 << 18  # bytes of one stored version
ROLE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
ROLE_FORM: Final = "1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending alphanumeric"
#: `at` and `by` are ignored; they are permitted so that a document that was read can be sent back.
KNOWN: Final = ("version", "comment", "roles", "bindings", "unix_users", "shares", "at", "by")
ROLE_KNOWN: Final = ("name", "rights", "limits")
LIMITS_KNOWN: Final = ("users", "images", "volumes", "highest_priority", "must_be_preemptible")
BINDING_KNOWN: Final = ("names", "groups", "roles", "queues", "apps")


def decode(value: Mapping[str, Any]) -> AccessDocument | list[Problem]:
    """Parse an access document, with the version that it is based on; return it, or all problems."""
    check = Check(value, KNOWN)
    version = check.integer("version", 0, (0, MAX_VERSION))
    comment = fields.line(check, "comment", fields.MAX_COMMENT)
    roles = _roles(check)
    role_names = [*BUILT_IN, *(role.name for role in roles)]
    bindings = _bindings(check, role_names)
    unix_users, shares = _unix_users(check), _shares(check)
    document = AccessDocument(
        version=version,
        comment=comment,
        roles=tuple(roles),
        bindings=tuple(bindings),
        unix_users=unix_users,
        shares=shares,
    )
    if not check.problems and (size := len(msgspec.json.encode(document))) > MAX_BYTES:
        check.problem(
            "", f"must have at most {MAX_BYTES} bytes, but has {size}; bind groups instead of names"
        )
    return check.problems or document


def encode(document: AccessDocument) -> dict[str, Any]:
    """Return a document in the form that `decode` parses, with all fields."""
    return {
        "version": document.version,
        "at": document.at or None,
        "by": document.by,
        "comment": document.comment,
        "roles": [encode_role(role) for role in document.roles],
        "bindings": [encode_binding(binding) for binding in document.bindings],
        "unix_users": dict(document.unix_users),
        "shares": {queue: [kind.value for kind in shared] for queue, shared in document.shares.items()},
    }


def encode_role(role: Role) -> dict[str, Any]:
    """Return a role as JSON, with its limits."""
    values = {key: getattr(role.limits, key) for key in LIMITS_KNOWN}
    limits = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    return {"name": role.name, "rights": list(role.rights), "limits": limits}


def encode_binding(binding: Binding) -> dict[str, Any]:
    """Return a binding as JSON."""
    return {key: list(getattr(binding, key)) for key in BINDING_KNOWN}


def _objects(check: Check, key: str, most: int, known: tuple[str, ...]) -> list[tuple[int, Check]]:
    """Return the objects in a list with their indexes, each in a check of its own."""
    given = []
    for index, item in enumerate(fields.objects(check, key, most)):
        if isinstance(item, dict):
            given.append((index, Check(item, known)))
        else:
            check.problem(f"{key}/{index}", f"must be an object, got {show(item)}")
    return given


def _roles(check: Check) -> list[Role]:
    """Parse the field `roles`."""
    roles: list[Role] = []
    for index, role_check in _objects(check, "roles", MAX_ROLES, ROLE_KNOWN):
        name = role_check.text("name", None, ROLE_NAME, ROLE_FORM) or ""
        if not name and "name" not in role_check.failed:
            role_check.problem("name", f"must be {ROLE_FORM}; it is missing")
        if name in BUILT_IN:
            role_check.problem("name", f"{name} is a built-in role; choose another name")
        if name and any(role.name == name for role in roles):
            role_check.problem("name", f"there are two roles {name}; rename or remove one")
        given = fields.rights(role_check)
        if not given and "rights" not in role_check.failed:
            role_check.problem("rights", "must have at least one right")
        roles.append(Role(name, given, _limits(role_check)))
        check.take(f"roles/{index}", role_check)
    return roles


def _limits(role: Check) -> Limits:
    """Parse the limits of a role."""
    given = role.given.get("limits", {})
    if not isinstance(given, dict):
        role.problem("limits", f"must be an object, got {show(given)}")
        return Limits()
    check, none = Check(given, LIMITS_KNOWN), Limits()
    limits = Limits(
        users=fields.texts(check, "users", fields.MAX_PATTERNS, _user_problem),
        images=fields.texts(check, "images", fields.MAX_PATTERNS, _image_problem, default=none.images),
        volumes=fields.texts(check, "volumes", fields.MAX_PATTERNS, _volume_problem),
        highest_priority=check.integer("highest_priority", 0, (-HIGHEST_PRIORITY, HIGHEST_PRIORITY)),
        must_be_preemptible=check.flag("must_be_preemptible"),
    )
    role.take("limits", check)
    return limits


_USERS: Final = re.compile(r"[a-z0-9_*-]+\$?")
_users_problem: Final = fields.pattern_problem(
    _USERS, "a user of Linux or a pattern of them, as www or svc-*"
)
_image_problem: Final = fields.pattern_problem(None, "an image or a pattern of them, as registry.corp/*")


def _user_problem(text: str) -> str:
    if text == "root":
        return "root can only be allowed by the scheduler's option --allow-root; remove it"
    return _users_problem(text)


def _volume_problem(text: str) -> str:
    if text == EVERYTHING:
        return ""
    plain = text.startswith("/") and not text.startswith("//") and normpath(text) == text
    if not plain or not text.isprintable() or len(text) > 1024:
        return f"must be * or an absolute path without '.', '..' and a slash at its end, got {show(text)}"
    return ""


def _bindings(check: Check, roles: list[str]) -> list[Binding]:
    """Parse the field `bindings`; `roles` are the known roles."""
    bindings = []
    for index, binding_check in _objects(check, "bindings", MAX_BINDINGS, BINDING_KNOWN):
        names = fields.texts(
            binding_check,
            "names",
            MAX_WHO,
            lambda text: "" if text == EVERYTHING else fields.name_problem(text),
        )
        groups = fields.texts(binding_check, "groups", MAX_WHO, fields.name_problem)
        if not names and not groups and not binding_check.problems:
            binding_check.problem("", "must have names or groups, but has neither")
        has = fields.texts(binding_check, "roles", MAX_ROLES, lambda text: _role_problem(text, roles))
        if not has and "roles" not in binding_check.failed:
            binding_check.problem("roles", f"must have at least one role, of {', '.join(roles[:20])}")
        bindings.append(Binding(names, groups, has, fields.queues(binding_check), fields.apps(binding_check)))
        check.take(f"bindings/{index}", binding_check)
    return bindings


def _role_problem(text: str, known: list[str]) -> str:
    if text in known:
        return ""
    near = difflib.get_close_matches(text, known, n=2)
    more = f"did you mean {' or '.join(near)}?" if near else f"roles are {', '.join(known[:20])}"
    return f"there is no role {show(text)}; {more}"


def _unix_users(check: Check) -> dict[str, str]:
    users: dict[str, str] = {}
    for name, user in _mapping(check, "unix_users").items():
        place = f"unix_users/{escaped(name)}"
        if why := fields.name_problem(name):
            check.problem(place, f"has an invalid name, which {why}")
        if not isinstance(user, str) or not USER.fullmatch(user):
            check.problem(place, f"must be a user name of Linux, as alice, got {show(user)}")
        elif user == "root":
            check.problem(place, "must not be root, which only the scheduler's option --allow-root can allow")
        else:
            users[name] = user
    return users


def _shares(check: Check) -> dict[str, tuple[Shared, ...]]:
    """Parse the field `shares`."""
    shares: dict[str, tuple[Shared, ...]] = {}
    kinds = {shared.value: shared for shared in Shared}
    for queue, shared in _mapping(check, "shares").items():
        place = f"shares/{escaped(queue)}"
        if not QUEUE.fullmatch(queue):
            check.problem(
                place,
                f"must be an entry of a queue, as research/vision, but {show(queue)} is not the name of one",
            )
        if not isinstance(shared, list) or not all(
            isinstance(kind, str) and kind in kinds for kind in shared
        ):
            check.problem(place, f"must be a list of {', '.join(kinds)}, got {show(shared)}")
        else:
            shares[queue] = tuple(dict.fromkeys(kinds[each] for each in shared))
    return shares


def _mapping(check: Check, key: str) -> dict[str, Any]:
    given = check.given.get(key, {})
    if (
        not isinstance(given, dict)
        or len(given) > MAX_ENTRIES
        or not all(isinstance(name, str) for name in given)
    ):
        check.problem(key, f"must be an object of at most {MAX_ENTRIES} entries, got {show(given)}")
        return {}
    return given
