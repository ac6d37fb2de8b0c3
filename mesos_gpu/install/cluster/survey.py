"""What a host has of its plan, asked in one go: nothing is changed there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.adapters.ssh.client import Done
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.install.cluster.description import Role
from mesos_gpu.install.cluster.plan import HostPlan, PlannedFile, Service

#: Holds the digest of what of this package is installed.
MARK: Final = "/opt/mesos-gpu/.cluster-release"
_WORD: Final = "mesos-gpu-survey"  # before each line of an answer: what a login prints besides is passed over
SCRIPT: Final = f"""\
set -u
say() {{ printf '{_WORD}\\t%s\\n' "$*"; }}
say uid "$(id -u)"
say debian "$(command -v dpkg-query || true)"
say machine "$(uname -m)"
say cgroups "$(stat -fc %T /sys/fs/cgroup)"
[ ! -d /run/systemd/system ] || say systemd yes
say release "$(cat {MARK} 2>/dev/null || true)"
while read -r kind name; do
    case $kind in
    package) say package "$name" "$(dpkg-query -W -f '${{db:Status-Status}}\\n' "$name" 2>/dev/null | head -n 1)" ;;
    user) ! getent passwd "$name" >/dev/null || say user "$name" ;;
    file) [ -L "$name" ] || [ ! -f "$name" ] ||
        say file "$name" "$(sha256sum <"$name" | cut -c 1-64)" "$(stat -c '%a %U:%G' "$name")" ;;
    unit) ! systemctl is-enabled "$name" >/dev/null 2>&1 || say enabled "$name"
        ! systemctl is-active "$name" >/dev/null 2>&1 || say active "$name" ;;
    program) [ ! -x "$name" ] || say program "$name" ;;
    esac
done
say end
"""


@dataclass(slots=True)
class Survey:
    """What was seen.

    Attributes:
        facts: One each: uid, machine, cgroups, systemd, release.
        packages: Debian packages that are installed.
        users: Those of the plan that are there.
        files: Digest, mode and owner by path.
        enabled: Units that start with the host.
        active: Units that run.
    """

    facts: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    files: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)

    def has(self, file: PlannedFile) -> bool:
        """Whether a file is there as it is planned."""
        return self.files.get(file.path) == (file.sha256, f"{file.mode:o}", file.owner)


def questions(plan: HostPlan, program: str) -> bytes:
    """What `SCRIPT` reads. `program`: path of `mesos-gpu` there."""
    lines = [
        *(f"package {name}" for name in plan.packages),
        *(f"user {name}" for name, _ in plan.users),
        *(f"file {file.path}" for file in plan.files),
        *(f"unit {service.name}" for service in plan.services),
        f"program {program}",
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def read(name: str, done: Done) -> Survey:
    """An answer.

    Args:
        name: The host's, for messages.
        done: `SCRIPT`, as it ended.

    Raises:
        Unavailable: It is not whole.
    """
    made, whole = Survey(), False
    for line in done.output.splitlines():
        word, _, rest = line.partition("\t")
        if word == _WORD:
            whole = whole or _take(made, rest.split())
    if done.code or not whole:
        raise Unavailable(
            f"{name} does not say what it has (exit status {done.code}):\n{done.output[-2000:]}",
            remedy="its sh must be that of Debian, and a user other than root needs sudo without a password",
        )
    return made


def _take(survey: Survey, words: list[str]) -> bool:
    """Note a line; whether it is the last one."""
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


def check(plan: HostPlan, survey: Survey, program: str, *, starts: bool) -> None:
    """See that the plan can be done there.

    Args:
        plan: Of the host.
        survey: What it has.
        program: Path of `mesos-gpu` there, where it is not installed by the plan; else "".
        starts: Whether services are to be started.

    Raises:
        BadConfiguration: It cannot; nothing has been changed.
    """
    for fits, what, remedy in _needs(plan, survey.facts, program, starts=starts):
        if not fits:
            raise BadConfiguration(f"{plan.host.name}: {what}", remedy=remedy)


def _needs(
    plan: HostPlan, facts: Mapping[str, str], program: str, *, starts: bool
) -> Iterator[tuple[bool, str, str]]:
    """Whether something is as it must be, what to say if not, and what mends it."""
    machine, wanted = facts.get("machine"), plan.host.cgroups
    there = {"tmpfs": "v1", "cgroup2fs": "v2"}.get(facts.get("cgroups", ""), "")
    yield facts.get("uid") == "0", "commands there are not root's", "ssh: user: root, or one with sudo"
    yield "debian" in facts, "there is no dpkg", "take a host with Debian 12 or later"
    if starts:
        remedy = "--no-start, and start the commands of the units"
        yield "systemd" in facts, "systemd does not run there", remedy
    if {Role.MASTER, Role.AGENT} & {*plan.host.roles}:
        yield machine == "x86_64", f"this package's Mesos is for x86_64, not {machine}", "take another host"
    if Role.AGENT in plan.host.roles and there:
        what = f"cgroups: {wanted} is written, and the host has {there}"
        yield there == wanted, what, f"write cgroups: {there}"
    if program:
        remedy = "install it there, or name a wheel or deb in package:"
        yield "program" in facts, f"there is no program {program}", remedy


def actions(plan: HostPlan, survey: Survey, *, changed: set[str], program: bool) -> list[tuple[str, Service]]:
    """What is to be done about services: "restart" or "start", and which.

    Args:
        plan: Of the host.
        survey: What it had.
        changed: Paths of files that are written.
        program: Whether another release is installed.
    """
    made = []
    for service in plan.services:
        anew = changed & {*service.reads} or (program and service.of_program)
        if service.name not in survey.active:
            made.append(("start", service))
        elif anew:
            made.append(("restart", service))
        elif service.name not in survey.enabled:
            made.append(("enable", service))
    return made
