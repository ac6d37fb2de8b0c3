"""Read-only diagnosis whether this host can run a Mesos master or agent with given flags."""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from isolator.node.findings import Finding, Level
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.libmesos import fetch
from mesos_gpu.libmesos.cxx import CallFailed
from mesos_gpu.libmesos.program import ZooKeeper, zookeeper
from mesos_gpu.libmesos.service import Service

ANSWER_S: Final = 5.0
_MASTERS: Final = "json.info_"  # prefix of the ZooKeeper nodes by which masters are candidates
_CONTROLLERS: Final = ("cpu", "cpuacct", "freezer", "memory")


def diagnose(service: Service) -> list[Finding]:
    """Return the findings of all checks, also of those that could not be made.

    Raises:
        BadConfiguration: The flags themselves are invalid.
    """
    flags = service.flags()
    checks: list[Callable[[Service, Mapping[str, str]], Iterator[Finding]]] = [
        _program, _names, _address, _port, _work_dir, _zookeeper,
    ]  # fmt: skip
    if service.kind == "agent":
        checks.append(_isolation)
    return [finding for check in checks for finding in check(service, flags)]


def _program(service: Service, _flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the program can be run."""
    try:
        if service.binaries:
            service.command()
        else:
            fetch.libmesos()
    except MesosGpuError as error:
        yield Finding("program", Level.FAIL, error.what, error.remedy)
        return
    what = f"{service.binaries}/mesos-{service.kind}" if service.binaries else "this package's Mesos 1.11.0"
    yield Finding("program", Level.OK, what)


def _names(service: Service, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that clients must authenticate, and that this service can."""
    missing = service.believes()
    if missing and service.reached:
        remedy = "`mesos-gpu install secrets DIRECTORY` writes the files that they name"
        yield Finding(
            "names",
            Level.FAIL,
            f"any client that reaches it has full access: {', '.join(missing)} missing",
            remedy,
        )
    elif missing:
        yield Finding("names", Level.OK, "clients on this host have full access; other hosts cannot reach it")
    else:
        yield Finding("names", Level.OK, "all clients must authenticate")
    proves = flags.get("authenticate_agents" if service.kind == "master" else "credential")
    try:
        if proves:
            fetch.check_mechanism()
    except MesosGpuError as error:
        yield Finding("names", Level.FAIL, error.what, error.remedy)
    for name in ("credential", "credentials", "http_credentials"):
        yield from _secret(name, flags.get(name, ""))


def _secret(flag: str, named: str) -> Iterator[Finding]:
    path = Path(named.removeprefix("file://"))
    if not named:
        return
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield Finding("names", Level.FAIL, f"--{flag}: {path}: {error.strerror}", "create the file")
        return
    if mode & 0o077:
        yield Finding("names", Level.FAIL, f"--{flag}: others can read {path}", f"chmod 600 {path}")


def _address(service: Service, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that other hosts can reach the address that the service advertises."""
    address = flags.get("advertise_ip") or service.ip
    if not address:
        try:
            address = socket.gethostbyname(socket.gethostname())
        except OSError as error:
            yield Finding(
                "address", Level.FAIL, f"this host's name has no address: {error.strerror}", "give --ip"
            )
            return
        if address.startswith("127."):
            text = f"without --ip it advertises {address}, which is the address of this host's name"
            yield Finding("address", Level.FAIL, text, "give --ip, or correct /etc/hosts")
            return
    reach = "only this host reaches it" if not service.reached else "others reach it there"
    yield Finding("address", Level.OK, f"{address}: {reach}")


def _port(service: Service, _flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((service.ip, service.port))
        except OSError as error:
            text = f"{service.ip or 'all addresses'}, port {service.port}: {error.strerror}"
            yield Finding(
                "port", Level.FAIL, text, "stop what listens there (ss -ltnp), or give --ip and --port"
            )
            return
    yield Finding("port", Level.OK, f"{service.port} is free")


def _work_dir(service: Service, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the work directory is writable and survives a restart."""
    if not (named := flags.get("work_dir", "")):
        yield Finding(
            "work_dir", Level.FAIL, "--work_dir is not given", f"--work_dir=/var/lib/mesos-{service.kind}"
        )
        return
    at = next(path for path in (Path(named), *Path(named).parents) if path.exists())
    kind = _file_system(at)
    if not os.access(at, os.W_OK):
        yield Finding(
            "work_dir", Level.FAIL, f"{at} cannot be written", "run as root, or choose another directory"
        )
    elif kind in ("tmpfs", "ramfs"):
        text = f"{named} is in memory ({kind}): its content is lost at a restart of the host"
        yield Finding("work_dir", Level.FAIL, text, "choose a directory on a disk")
    else:
        yield Finding("work_dir", Level.OK, f"{named} ({kind})")


def _file_system(path: Path) -> str:
    """Return the type of the file system that contains a path, as in proc(5)."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    real = str(path.resolve())
    over = [words for words in mounts if f"{real}/".startswith(f"{words[1].rstrip('/')}/")]
    return max(over, key=lambda words: len(words[1]))[2]


def _zookeeper(service: Service, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that ZooKeeper's servers answer, and that the quorum is a majority of the masters."""
    named = flags.get("zk" if service.kind == "master" else "master", "")
    if service.kind == "agent" and not named.startswith(("zk://", "file://")):
        yield from _single(named)
        return
    if not named:
        yield Finding("zookeeper", Level.OK, "none: this is the only master")
        return
    try:
        where = zookeeper(named)
    except CallFailed as error:
        yield Finding("zookeeper", Level.FAIL, str(error), "zk://HOST:2181,HOST:2181,HOST:2181/mesos")
        return
    assert where is not None
    servers = list(_servers(where))
    yield from servers
    if not any(finding.level is Level.FAIL for finding in servers):
        yield from _candidates(where, flags if service.kind == "master" else {}, reached=service.reached)


def _single(master: str) -> Iterator[Finding]:
    host, _, port = master.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except (OSError, ValueError) as error:
        yield Finding(
            "master", Level.FAIL, f"--master={master}: {error}", "start that master, or correct --master"
        )
        return
    yield Finding("master", Level.OK, f"{master} answers")


def _servers(where: ZooKeeper) -> Iterator[Finding]:
    """Check that a majority of ZooKeeper's servers answers."""
    servers = where.servers.split(",")
    dead: list[str] = []
    for server in servers:
        host, _, port = server.partition(":")
        try:
            socket.create_connection((host, int(port or 2181)), timeout=ANSWER_S).close()
        except (OSError, ValueError) as error:
            dead.append(f"; {server}: {error}")
    text = f"{len(servers) - len(dead)} of {len(servers)} servers answer"
    why = "".join(dead)
    if len(dead) * 2 >= len(servers):
        yield Finding("zookeeper", Level.FAIL, text + why, "start them: a majority must be running")
    elif dead:
        yield Finding("zookeeper", Level.WARN, text + why, "start it: one more failure may stop the ensemble")
    elif len(servers) % 2 == 0:
        text += "; an even number tolerates no more failures than one server less"
        yield Finding("zookeeper", Level.WARN, text, "use 3 or 5 servers")
    else:
        yield Finding("zookeeper", Level.OK, text)


def _candidates(where: ZooKeeper, flags: Mapping[str, str], *, reached: bool) -> Iterator[Finding]:
    """Report the candidate masters in ZooKeeper, and whether others could register there as a master."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.security import Permissions

    proof = [("digest", where.credentials)] if where.credentials else []
    acls: Sequence[Any] = ()
    client = KazooClient(where.servers, timeout=ANSWER_S, auth_data=proof)
    try:
        client.start(timeout=ANSWER_S)
        names = sorted(name for name in client.get_children(where.path) if name.startswith(_MASTERS))
        masters = [json.loads(client.get(f"{where.path}/{name}")[0]) for name in names]
        acls = client.get_acls(where.path)[0]
    except NoNodeError:
        masters = []
    except (KazooException, KazooTimeoutError, OSError, ValueError) as error:
        yield Finding(
            "masters", Level.FAIL, f"cannot read the masters from ZooKeeper: {error!r}", "see ZooKeeper's log"
        )
        return
    finally:
        client.stop()
        client.close()
    addresses = [f"{info['address']['ip']}:{info['address']['port']}" for info in masters]
    yield Finding(
        "masters",
        Level.OK,
        f"{len(addresses)} masters registered"
        + (f": {', '.join(addresses)}; the first leads" if addresses else ""),
    )
    if reached and any(acl.id.scheme == "world" and acl.perms & ~Permissions.READ for acl in acls):
        text = f"any client of ZooKeeper may write {where.path}, and so register a master"
        yield Finding("masters", Level.WARN, text, "give masters --zk=file://FILE with zk://USER:PASSWORD@…")
    yield from _quorum(flags, len(addresses))


def _quorum(flags: Mapping[str, str], masters: int) -> Iterator[Finding]:
    """Check that --quorum is a majority of the masters."""
    quorum = flags.get("quorum", "")
    if "zk" not in flags or flags.get("registry") == "in_memory":
        return
    if not quorum.isdecimal() or not int(quorum):
        yield Finding(
            "quorum", Level.FAIL, "--quorum is not given", "more than half of the masters: 2 of 3, 3 of 5"
        )
    elif int(quorum) * 2 <= masters:
        text = f"--quorum={quorum} is not more than half of {masters} masters: two halves could each keep a registry"
        yield Finding("quorum", Level.FAIL, text, f"use --quorum={masters // 2 + 1} on all masters")
    else:
        most = 2 * int(quorum) - 1
        text = f"{quorum}: sufficient for {most} masters, of which {most - int(quorum)} may be down"
        yield Finding("quorum", Level.OK, text)


def _isolation(_service: Service, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check that this host supports the launcher."""
    launcher = flags.get("launcher") or ("linux" if not os.geteuid() else "posix")
    hierarchy = Path(flags.get("cgroups_hierarchy", "/sys/fs/cgroup"))
    missing = [name for name in _CONTROLLERS if not (hierarchy / name).is_dir()]
    if launcher == "linux" and missing:
        text = f"the launcher linux needs cgroup v1, and {hierarchy} lacks {', '.join(missing)}"
        yield Finding(
            "isolation",
            Level.FAIL,
            text,
            "`mesos-gpu install agent --cgroups v2` prints flags for a host with cgroup v2",
        )
    elif launcher == "posix":
        yield Finding("isolation", Level.WARN, "the launcher posix limits neither memory nor processors of tasks",
                      "use the launcher linux if the host has cgroup v1")  # fmt: skip
    else:
        yield Finding("isolation", Level.OK, f"{launcher}: {flags.get('isolation', '')}")
