"""Decoder of the file that describes a cluster; it reports all problems at once."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from mesos_gpu.adapters.ssh.client import Ssh
from mesos_gpu.install.agent import CGROUPS
from mesos_gpu.install.cluster import release, rules
from mesos_gpu.install.cluster.description import Cluster, Host, Package, Role, Tls
from mesos_gpu.install.cluster.record import Record
from mesos_gpu.install.cluster.release import Release
from mesos_gpu.wire.checking import Check, Problem, escaped, is_text, show

T = TypeVar("T")
MAX_HOSTS: Final = 10_000
#: Host names occur in file names and on command lines.
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PROGRAM: Final = re.compile(r"/[\w./+-]+")
_MESOS_ROLE: Final = re.compile(r"\*|[A-Za-z0-9_][\w.-]{0,127}")
_VALUE: Final = re.compile(r"[^'\0\r\n]*")
#: SSH options that the file may set besides its own fields. Other options, which run commands or turn checks off,
#: belong in the user's ~/.ssh/config.
SSH_OPTIONS: Final = frozenset({
    "AddressFamily", "BindAddress", "CheckHostIP", "Ciphers", "Compression", "HostKeyAlgorithms", "HostKeyAlias",
    "IdentitiesOnly", "KexAlgorithms", "MACs", "ProxyJump", "PubkeyAcceptedAlgorithms", "ServerAliveInterval",
})  # fmt: skip
_SSH: Final = ("host", "user", "port", "identity", "known_hosts", "options")
_HOSTS: Final = (
    "address", "roles", "ssh", "gpus", "cgroups", "settings", "master_flags", "agent_flags", "options", "tls",
)  # fmt: skip
_TOP: Final = ("package", "hosts", "ssh", "role", "people", "firewall", "zookeeper_heap_mib", "ca")
#: Fields of a host that apply to one role only.
_OF_ROLE: Final = {
    "gpus": Role.AGENT,
    "cgroups": Role.AGENT,
    "settings": Role.AGENT,
    "agent_flags": Role.AGENT,
    "master_flags": Role.MASTER,
    "options": Role.SCHEDULER,
    "tls": Role.SCHEDULER,
}


def decode(value: Mapping[str, Any], base: Path, record: Record) -> Cluster | list[Problem]:
    """Return the described cluster, or all problems of the description.

    Args:
        value: Content of the file.
        base: Directory of the file, to which its paths are relative.
        record: Record of the last apply.
    """
    decoded = _Decoded.of(value, Files(base))
    if decoded.problems:
        # Report problems between hosts even if files of the package or certificates are missing.
        others = _Decoded.of(value, Files(base, looked_for=False))
        return [*decoded.problems, *([] if others.problems else rules.faults(others.cluster, record))]
    return list(rules.faults(decoded.cluster, record)) or decoded.cluster


@dataclass(frozen=True, slots=True)
class Files:
    """Lookup of files that a description names.

    Attributes:
        base: Directory to which paths are relative.
        looked_for: Whether a missing file is a problem.
    """

    base: Path
    looked_for: bool = True


class _Decoded(NamedTuple):
    """A decoded cluster, with the problems of its fields."""

    cluster: Cluster
    problems: list[Problem]

    @classmethod
    def of(cls, value: Mapping[str, Any], base: Files) -> "_Decoded":
        """Decode a description."""
        check = Check(value, _TOP)
        return cls(_cluster(check, base), check.problems)


def _cluster(check: Check, base: Files) -> Cluster:
    common = _ssh(check, "ssh", Ssh(), base)
    hosts = tuple(_hosts(check, common, base))
    return Cluster(
        tuple(sorted(hosts, key=lambda host: list(Role).index(host.roles[0]))),
        _package(check, base),
        role=check.text("role", "*", _MESOS_ROLE, "the name of a role, as gpu, or *") or "*",
        people=tuple(_listed(check, "people", IPv4Network, "a network, as 10.0.0.0/8")),
        firewall=check.flag("firewall"),
        heap_mib=check.integer("zookeeper_heap_mib", 512, (64, 65536)),
        ca=_path(check, "ca", base),
    )


def _listed(check: Check, key: str, kind: Callable[[str], T], form: str) -> Iterator[T]:
    values = check.given.get(key, [])
    if not isinstance(values, list):
        check.problem(key, f"must be a list, got {show(values)}")
        return
    for i, item in enumerate(values):
        try:
            yield kind(item if isinstance(item, str) else "")
        except ValueError:
            check.problem(f"{key}/{i}", f"must be {form}, got {show(item)}")


def _inner(check: Check, key: str, fields: tuple[str, ...]) -> Check:
    value = check.given.get(key, {})
    if not isinstance(value, dict):
        check.problem(key, f"must be an object, got {show(value)}")
        value = {}
    return Check(value, fields)


def _ssh(check: Check, key: str, default: Ssh, base: Files) -> Ssh:
    """Decode SSH settings; fields that are not given have the values of `default`."""
    inner = _inner(check, key, _SSH)
    options = inner.strings("options", re.compile(r"[A-Za-z0-9]+"), "anything but letters and digits")
    for name in options.keys() - SSH_OPTIONS:
        inner.problem(
            f"options/{escaped(name)}", f"must be one of {', '.join(sorted(SSH_OPTIONS))}; or ~/.ssh/config"
        )
    ssh = Ssh(
        host=inner.text("host", default.host or None, _HOST, "a host's name or address") or "",
        user=inner.text("user", default.user, _USER, "the name of a user") or default.user,
        port=inner.integer("port", default.port, (1, 65535)),
        identity=_path(inner, "identity", base) or default.identity,
        known_hosts=_path(inner, "known_hosts", base) or default.known_hosts,
        options={**default.options, **options},
    )
    check.take(key, inner)
    return ssh


def _path(check: Check, key: str, base: Files, *, is_directory: bool = False) -> Path | None:
    """Return the path in a field if the file (or directory) exists; otherwise record a problem."""
    value = check.given.get(key)
    if value is None:
        return None
    if not is_text(value) or not value:
        check.problem(key, f"must be a path, got {show(value)}")
        return None
    path = base.base / os.path.expanduser(str(value))
    if base.looked_for and not (os.path.isdir(path) if is_directory else os.path.isfile(path)):
        check.problem(
            key, f"must be a {'directory' if is_directory else 'file'} here; there is no {str(path)[:200]}"
        )
    return path


def _package(check: Check, base: Files) -> Package:
    """Decode the source of the program."""
    inner = _inner(check, "package", ("wheel", "requirements", "wheels", "deb", "agent_deb", "program"))
    package = Package(
        wheel=_path(inner, "wheel", base),
        requirements=_path(inner, "requirements", base),
        wheels=_path(inner, "wheels", base, is_directory=True),
        deb=_path(inner, "deb", base),
        agent_deb=_path(inner, "agent_deb", base),
        program=inner.text("program", None, _PROGRAM, "the path of mesos-gpu on the hosts") or "",
    )
    ways = [name for name in ("wheel", "deb", "program") if name in inner.given]
    if len(ways) != 1:
        inner.problem("", f"must have one of wheel, deb and program, got {' and '.join(ways) or 'none'}")
    elif ways == ["wheel"] and "requirements" not in inner.given:
        inner.problem("requirements", "is missing: give requirements-run.lock of the release")
    for name, way in (("requirements", "wheel"), ("wheels", "wheel"), ("agent_deb", "deb")):
        if len(ways) == 1 and ways != [way] and name in inner.given:
            inner.problem(name, f"is for a {way}: remove it")
    package = replace(
        package, release=_release(inner, package) if base.looked_for and not inner.problems else None
    )
    check.take("package", inner)
    return package


def _release(check: Check, package: Package) -> Release | None:
    """Read the release from the package files, and record files that are no valid package or do not match."""

    def attempt(key: str, read: Callable[[], Release]) -> Release | None:
        try:
            return read()
        except ValueError as error:
            check.problem(key, str(error))
        except OSError as error:
            check.problem(key, f"cannot be read: {error.strerror}")
        return None

    if (wheel := package.wheel) is not None:
        return attempt("wheel", lambda: release.of_wheel(wheel))
    if (deb := package.deb) is None:
        return None
    deb_release = attempt("deb", lambda: release.of_deb(deb, release.PROGRAM))
    if (agent := package.agent_deb) is not None:
        agent_release = attempt("agent_deb", lambda: release.of_deb(agent, release.AGENT))
        if deb_release and agent_release and deb_release.version != agent_release.version:
            what = f"is of release {agent_release.version}, but deb is of {deb_release.version}"
            check.problem("agent_deb", f"{what}: use packages of one build")
    return deb_release


def _hosts(check: Check, common: Ssh, base: Files) -> Iterator[Host]:
    """Decode all hosts, and yield those without problems."""
    hosts = check.given.get("hosts", {})
    if not isinstance(hosts, dict) or not 0 < len(hosts) <= MAX_HOSTS:
        check.problem("hosts", f"must be an object of 1 to {MAX_HOSTS} hosts by name, got {show(hosts)}")
        return
    for name, value in hosts.items():
        place = f"hosts/{escaped(name)}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            check.problem(place, "must have a name of lower-case letters, digits and - within")
        elif not isinstance(value, dict):
            check.problem(place, f"must be an object, got {show(value)}")
        else:
            inner = Check(value, _HOSTS)
            host = _host(inner, name, common, base)
            check.take(place, inner)
            if host is not None:
                yield host


def _host(check: Check, name: str, common: Ssh, base: Files) -> Host | None:
    """Decode one host; None if it has problems."""
    roles = _roles(check)
    address = _address(check)
    host = Host(
        name,
        address,
        roles,
        _ssh(check, "ssh", replace(common, host=str(address)), base),
        gpus=check.integer("gpus", 0, (0, 1024)),
        cgroups=check.text("cgroups", "v2", re.compile("|".join(CGROUPS)), " or ".join(CGROUPS)) or "v2",
        settings=_values(
            check, "settings", re.compile(r"MESOS_GPU_[A-Z0-9_]+"), "another beginning than MESOS_GPU_"
        ),
        flags={role: _flags(check, role) for role in (Role.MASTER, Role.AGENT)},
        options=_options(check),
        tls=_tls(check, base),
    )
    for key, role in _OF_ROLE.items():
        if roles and key in check.given and role not in roles:
            check.problem(key, f"is for hosts with the role {role}: remove it")
    if Role.AGENT in roles and "gpus" not in check.given:
        check.problem("gpus", "is missing: give the number of GPUs that `nvidia-smi -L` lists there")
    return None if check.problems else host


def _tls(check: Check, base: Files) -> Tls | None:
    if "tls" not in check.given:
        return None
    inner = _inner(check, "tls", ("cert", "key"))
    cert, key = (_path(inner, name, base) for name in ("cert", "key"))
    for name in {"cert", "key"} - inner.given.keys():
        inner.problem(name, "is missing: give a PEM file on this machine")
    check.take("tls", inner)
    return Tls(cert, key) if cert and key else None


def _roles(check: Check) -> tuple[Role, ...]:
    names = check.given.get("roles")
    if not isinstance(names, list) or not names or set(map(str, names)) - set(Role):
        choices = ", ".join(Role)
        check.problem("roles", f"must be a list of one or more of {choices}, got {show(names)}")
        return ()
    return tuple(role for role in Role if role in names)


def _address(check: Check) -> IPv4Address:
    text = check.given.get("address")
    try:
        return IPv4Address(text if isinstance(text, str) else "")
    except ValueError:
        form = "the IPv4 address at which the other hosts reach it"
        check.problem("address", f"must be {form}, got {show(text)}")
        return IPv4Address(0)


def _values(check: Check, key: str, pattern: re.Pattern[str], form: str) -> dict[str, str]:
    """Return values for an environment file, in which they are put between single quotes."""
    values = check.strings(key, pattern, form)
    for name, value in values.items():
        if is_text(value) and not _VALUE.fullmatch(value):
            check.problem(
                f"{key}/{escaped(name)}", f"must be one line without a single quote, got {show(value)}"
            )
    return values


def _flags(check: Check, role: Role) -> dict[str, str]:
    key = f"{role}_flags"
    flags = _values(
        check, key, re.compile(r"[a-z][a-z0-9_]*"), "anything but lower-case letters, digits and _"
    )
    for name in flags.keys() & rules.OWN_FLAGS[role]:
        check.problem(f"{key}/{name}", "is set by the plan: remove it")
    return flags


def _options(check: Check) -> str:
    options = check.given.get("options", "")
    if not isinstance(options, str) or not _VALUE.fullmatch(options):
        check.problem("options", f"must be one line without a single quote, got {show(options)}")
        return ""
    try:
        shlex.split(options)
    except ValueError as error:
        check.problem("options", f"cannot be split into words: {error}")
    return options
