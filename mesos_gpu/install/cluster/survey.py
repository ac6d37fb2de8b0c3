"""Survey of what a host already has, by one script that changes nothing there."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.adapters.ssh.client import Done
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.install.cluster.description import Package, Role
from mesos_gpu.install.cluster.plan import HostPlan, PlannedFile, Service

#: File with the digest of the installed package.
MARK: Final = "/opt/mesos-gpu/.cluster-release"
#: Unix socket at which a scheduler authenticates root of its host.
SOCKET: Final = "/run/mesos-gpu/api.sock"
_WORD: Final = "mesos-gpu-survey"  # prefix of each line of the answer, to skip what a login shell prints
SCRIPT: Final = f"""\
set -u
say() {{ printf '{_WORD}\\t%s\\n' "$*"; }}
say uid "$(id -u)"
say debian "$(command -v dpkg-query || true)"
say machine "$(uname -m)"
say architecture "$(dpkg --print-architecture 2>/dev/null || true)"
say cgroups "$(stat -fc %T /sys/fs/cgroup)"
[ ! -d /run/systemd/system ] || say systemd yes
say release "$(cat {MARK} 2>/dev/null || true)"
version=""
for each in /opt/mesos-gpu/lib/python3*/site-packages/mesos_gpu-*.dist-info; do
    [ ! -d "$each" ] || {{ version=${{each##*/mesos_gpu-}} version=${{version%.dist-info}}; }}
done
say version "$version"
while read -r kind name; do
    case $kind in
    package) say package "$name" "$(dpkg-query -W -f '${{db:Status-Status}}\\n' "$name" 2>/dev/null | head -n 1)" ;;
    user) ! getent passwd "$name" >/dev/null || say user "$name" ;;
    file) [ -L "$name" ] || [ ! -f "$name" ] ||
        say file "$name" "$(sha256sum <"$name" | cut -c 1-64)" "$(stat -c '%a %U:%G' "$name")" ;;
    unit) ! systemctl is-enabled "$name" >/dev/null 2>&1 || say enabled "$name"
        ! systemctl is-active "$name" >/dev/null 2>&1 || say active "$name" ;;
    program) [ ! -x "$name" ] || say program "$name" ;;
    offered) [ -z "$version" ] || ! dpkg --compare-versions "$version" gt "$name" || say newer yes ;;
    leads) [ ! -S {SOCKET} ] || say leads "$("$name" --url unix:{SOCKET} leader --json 2>/dev/null |
        python3 -c 'import json, sys; print("yes" if json.load(sys.stdin)["leads"] else "no")' 2>/dev/null)" ;;
    esac
done
say end
"""
_NO_PROGRAM: Final = 127  # exit status of a shell
_NO_SUDO: Final = re.compile(r"^sudo: |is not in the sudoers file|is not allowed to", re.MULTILINE)


@dataclass(slots=True)
class Survey:
    """State of a host.

    Attributes:
            facts: Single values, where known: uid, machine, architecture, cgroups, systemd; "release", the digest of
                the installed package; its "version"; "leads", whether its scheduler leads ("yes" or "no"); "newer",
                "yes" if the installed version is later than the one to install.
        packages: Debian packages that are installed.
        users: Planned users that exist.
        files: Digest, mode and owner by path.
        enabled: Units that start with the host.
        active: Units that are running.
    """

    facts: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    files: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)

    def has(self, file: PlannedFile) -> bool:
        """Return whether a file exists as planned."""
        return self.files.get(file.path) == (file.sha256, f"{file.mode:o}", file.owner)


def questions(plan: HostPlan, package: Package) -> bytes:
    """Return the input of `SCRIPT` for a plan."""
    program = package.command
    lines = [
        *(f"package {name}" for name in plan.packages),
        *(f"user {name}" for name, _ in plan.users),
        *(f"file {file.path}" for file in plan.files),
        *(f"unit {service.name}" for service in plan.services),
        *([f"offered {package.release.version}"] if package.release and plan.program else []),
        f"program {program}",
        *([f"leads {program}"] if Role.SCHEDULER in plan.host.roles else []),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def questions_of(files: Iterable[str], units: Iterable[str]) -> bytes:
    """Return the input of `SCRIPT` for files and services that may exist."""
    lines = [*(f"file {path}" for path in files), *(f"unit {name}" for name in units)]
    return "".join(f"{line}\n" for line in lines).encode()


def read(user: str, done: Done) -> Survey:
    """Return the state that `SCRIPT` reported.

    Args:
        user: User that ran the script.
        done: Result of the script.

    Raises:
        Unavailable: The report is incomplete, or the user may not become root.
    """
    survey, whole = Survey(), False
    for line in done.output.splitlines():
        word, _, rest = line.partition("\t")
        if word == _WORD:
            whole = whole or _parse_line(survey, rest.split())
    if done.code or not whole:
        _check_root(user, done)
        raise Unavailable(
            f"the survey of the host failed (exit status {done.code}):\n{done.output[-2000:]}",
            remedy="its sh must be Debian's",
        )
    return survey


def _check_root(user: str, done: Done) -> None:
    """Raise the reason if a user other than root could not run the script as root.

    Raises:
        Unavailable: `sudo` is missing, needs a password, or refuses.
    """
    if user == "root" or not (_NO_SUDO.search(done.output) or done.code == _NO_PROGRAM):
        return
    output = done.output.strip()[-500:]
    if done.code == _NO_PROGRAM:
        remedy = f"as root there: apt-get install -y sudo; then {_rule(user)}"
    else:
        remedy = f"as root there: {_rule(user)}"
    raise Unavailable(f"{user} may not become root by sudo without a password: {output}", remedy=remedy)


def _rule(user: str) -> str:
    return f"echo '{user} ALL=(root) NOPASSWD: ALL' > /etc/sudoers.d/mesos-gpu && chmod 440 /etc/sudoers.d/mesos-gpu"


def _parse_line(survey: Survey, words: list[str]) -> bool:
    """Record a line of the report. Return whether it is the last one."""
    match words:
        case ["end"]:
            return True
        case ["package", name, "installed"]:
            survey.packages.add(name)
        case ["user", name]:
            survey.users.add(name)
        case ["file", path, digest, mode, owner]:
            survey.files[path] = digest, mode, owner
        case ["enabled", name]:
            survey.enabled.add(name)
        case ["active", name]:
            survey.active.add(name)
        case [fact, value]:
            survey.facts[fact] = value
    return False


def check(plan: HostPlan, survey: Survey, package: Package, *, starts: bool, downgrade: bool) -> None:
    """Check that a plan can be carried out on its host.

    Args:
        plan: Plan of the host.
        survey: State of the host.
        package: Package to install.
        starts: Whether services are to be started.
        downgrade: Whether an earlier release may replace a later one.

    Raises:
        BadConfiguration: The plan cannot be carried out; nothing has been changed.
    """
    needs = [*_needs(plan, survey.facts, starts=starts)]
    if {*plan.host.roles} - {Role.ZOOKEEPER}:
        needs += _needs_of_program(survey.facts, package, downgrade=downgrade)
    for fits, what, remedy in needs:
        if not fits:
            raise BadConfiguration(f"{plan.host.name}: {what}", remedy=remedy)


def _needs(plan: HostPlan, facts: Mapping[str, str], *, starts: bool) -> Iterator[tuple[bool, str, str]]:
    """Yield requirements of a host: whether each is met, the message if not, and the remedy."""
    machine, planned = facts.get("machine"), plan.host.cgroups
    there = {"tmpfs": "v1", "cgroup2fs": "v2"}.get(facts.get("cgroups", ""), "")
    yield (
        facts.get("uid") == "0",
        "commands there do not run as root",
        "use ssh: user: root, or a user with sudo",
    )
    yield "debian" in facts, "there is no dpkg", "use a host with Debian 12 or later"
    if starts:
        remedy = "use --no-start, and start the commands of the units yourself"
        yield "systemd" in facts, "systemd is not running there", remedy
    if {Role.MASTER, Role.AGENT} & {*plan.host.roles}:
        yield machine == "x86_64", f"this package's Mesos is for x86_64, not {machine}", "use another host"
    if Role.AGENT in plan.host.roles and there:
        what = f"cgroups: {planned} is given, but the host has {there}"
        yield there == planned, what, f"write cgroups: {there}"


def _needs_of_program(
    facts: Mapping[str, str], package: Package, *, downgrade: bool
) -> Iterator[tuple[bool, str, str]]:
    """Yield requirements, like `_needs`, of the installed program and of the one to install."""
    if package.program:
        remedy = "install it there, or give a wheel or deb in package:"
        yield "program" in facts, f"there is no program {package.program}", remedy
    if (release := package.release) is None:
        return
    there = facts.get("architecture", "")
    what = f"the package is for {release.architecture}, and the host is {there or 'of another kind'}"
    yield release.architecture in ("all", there), what, "run `make deb` on such a host, or use a wheel"
    what = f"mesos_gpu {facts.get('version')} is installed there, which is later than {release.version}"
    remedy = "use --downgrade, and follow docs/upgrade.md"
    yield downgrade or "newer" not in facts, what, remedy


def actions(plan: HostPlan, survey: Survey, *, changed: set[str], program: bool) -> list[tuple[str, Service]]:
    """Return the actions needed for services: "start", "restart" or "enable", each with its service.

    Args:
        plan: Plan of the host.
        survey: State of the host before the plan was applied.
        changed: Paths of files that are written.
        program: Whether another release is installed.
    """
    actions = []
    for service in plan.services:
        needs_restart = changed & {*service.reads} or (program and service.of_program)
        if service.name not in survey.active:
            actions.append(("start", service))
        elif needs_restart:
            actions.append(("restart", service))
        elif service.name not in survey.enabled:
            actions.append(("enable", service))
    return actions
