"""An image in a container of the host's Docker Engine; the executor stays in its Mesos container."""

import base64
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from isolator.agent.docker_engine import DEFAULT_SOCKET, SIGKILLED, ContainerSettings, DockerEngine
from isolator.agent.docker_images import LocalImage
from isolator.agent.docker_output import Output
from isolator.confinement.apart import NOT_APART, apart_on_host_network
from isolator.confinement.enclosure import Enclosure
from isolator.confinement.gate import PROGRAM, Gate
from isolator.confinement.limits import NO_LIMITS, UNLIMITED, TaskLimits
from isolator.devices.cgroups import Cgroup, membership, mounted
from isolator.devices.docker_devices import PAUSES_S, verify
from isolator.devices.facts import read_driver
from isolator.devices.members import ENGINES, cgroup_names
from isolator.devices.rules import rules_of
from isolator.gpus import ledger
from isolator.gpus.ledger import Trace
from isolator.host import processes
from isolator.host.not_started import KILLED_BEFORE_START, NotStarted
from isolator.images.login import Login
from isolator.images.public import PublicImages
from isolator.images.reference import HUB, Reference
from isolator.images.registry import check_platform
from isolator.runs.image_run import (
    KILL,
    SANDBOX,
    argv_of,
    command_of,
    hand_secrets,
    login_for,
    prepare,
    refused_without_isolation,
)
from isolator.runs.memory import Witness, limit_container, most_used
from isolator.runs.run import Ended, Launch, container_of, secret_env
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.errors import MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.policy.tasks.limits import out_of_memory

OUTPUT_S: Final = 5.0  # wait for the last output after the end of the container


class DockerRun:
    """`Run` of an image by a Docker Engine.

    Args:
        plan: Launch of the task.
        inventory: Cards of this host.
        own: Environment of the executor.
    """

    def __init__(self, plan: Assignment, inventory: Inventory, own: Mapping[str, str]) -> None:
        self._plan, self._inventory = plan, inventory
        self._socket = own.get("MESOS_GPU_DOCKER_SOCKET") or DEFAULT_SOCKET
        self._engine = DockerEngine(self._socket)
        self._container = container_of(own)
        self._name = f"mesos-gpu-{self._container}"
        self._parent = memory_cgroup(self._container)
        # cgroup that Mesos gave to the executor; the container's is below it
        self._given: Cgroup | None = None
        self._limits: TaskLimits = NO_LIMITS
        self._created = False  # whether the container may exist in the engine
        self._pid = 0  # pid of the container's first process on the host
        self._began: int | None = None  # start time of that process
        self._gate: Gate | None = None
        self._output: Output | None = None
        self._witness: Witness | None = None
        self._copier: threading.Thread | None = None
        self._ended, self._aborted = threading.Event(), threading.Event()

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """Return the enclosure with the nodes, but without rules and limits.

        The engine sets these on the container's cgroup, and they are verified. Programs that fetch files for
        the task have both.
        """
        refused_without_isolation(enclosure.isolated)
        if enclosure.cgroup is not None and not enclosure.cgroup.own:
            self._given = enclosure.cgroup
        self._limits = enclosure.limits
        fence = enclosure.fence
        # on a bridge, the task's ports are not the host's
        if fence is not None and self._plan.bindings is not None:
            fence = replace(fence, grant=None)
        if not (self._plan.fetch or self._plan.upload):
            return replace(enclosure, cgroup=None, limits=NO_LIMITS, fence=fence)
        return replace(enclosure, cgroup=None, helpers=enclosure.cgroup, fence=fence)

    def traces(self) -> tuple[Trace, ...]:
        """Return the trace of the container, which the engine keeps when the executor dies."""
        return (Trace("docker", f"{self._socket} {self._name}"),)

    def start(self, launch: Launch) -> None:
        """Start the container, as `Run.start`; pull its image if need be."""
        plan, enclosure = self._plan, launch.enclosure
        assert plan.image is not None
        config = self._config(launch)
        command_of(plan, config)
        prepared = prepare(launch, config, self._inventory)
        user, argv = prepared.user, argv_of(plan, config)
        apart = NOT_APART
        if plan.bindings is None and not launch.reaches_sockets:
            apart = apart_on_host_network(launch.own)
        gate = self._gate = (
            Gate(enclosure.gate, enclosure.fence, apart) if enclosure.fence is not None else None
        )
        if gate is not None:
            gate.open()
        wish = ContainerSettings(
            image=plan.image,
            user=f"{user.pw_uid}:{user.pw_gid}",
            argv=argv if gate is None else (PROGRAM, *argv),
            env=prepared.env,
            groups=groups_of(user.pw_name, user.pw_gid),
            devices=tuple(
                (str(enclosure.node(d)), d.path, d.access) for d in (*enclosure.devices, *enclosure.extra)
            ),
            binds=((launch.sandbox, SANDBOX, False), *prepared.binds),
            cpus=plan.cpus,
            cpu_limit=plan.cpu_limit or 0.0,
            mem_mib=plan.mem_mib,
            pids=self._limits.amounts.pids,
            cgroup_parent=self._parent,
            labels={**plan.docker.labels, "mesos_gpu.task": launch.task},
            options=_options(plan),
            bindings=plan.bindings,
            own_binds=(*prepared.share, *([gate.bind()] if gate is not None else [])),
        )
        if self._aborted.is_set():
            raise NotStarted(KILLED_BEFORE_START)
        self._let_through(enclosure)
        self._created = True
        ident = self._engine.create(self._name, wish)
        launch.leave(Trace(ENGINES, ident))
        self._output = self._engine.attach(self._name)
        self._copier = threading.Thread(target=self._copy, args=(self._output,), daemon=True)
        self._copier.start()
        self._pid = self._engine.start(self._name)
        self._began = start_ticks(self._pid)
        if self._pid:
            # The process may have ended; with cgroups v2 the engine reports a lack of memory reliably.
            with contextlib.suppress(OSError):
                self._witness = Witness(self._pid)
            granted = {(device.major, device.minor) for device in enclosure.devices}
            verify(self._pid, granted, read_driver().nvidia_majors)
            self._see_memory()
        if self._pid and gate is not None:

            def see(pid: int) -> None:
                prepared.see(pid)
                self._limit(pid, ident, launch)
                hand_secrets(launch, prepared, pid)

            gate.admit(argv, self._has_ended, ident, first=self._pid, see=see, variables=secret_env(launch))

    def _see_memory(self) -> None:
        """Check that the engine limits the memory of the container, unless the operator does without.

        Raises:
            MesosGpuError: The engine does not limit it.
        """
        why = ""
        for pause_s in PAUSES_S if self._limits.memory is not None else ():
            try:
                why = limit_container(self._pid, self._plan.mem_mib)
            except (FileNotFoundError, ProcessLookupError) as error:
                why = str(error)
            if not why or self._has_ended():
                return
            time.sleep(pause_s)
        if why:
            raise MesosGpuError(
                f"the Docker Engine does not limit the memory of the container: {why}",
                remedy="see the warnings of docker info about memory; the host needs the cgroup controller memory, or "
                f"{UNLIMITED}=memory on the agent",
            )

    def _limit(self, pid: int, ident: str, launch: Launch) -> None:
        """Set the limits of the task's share on the container's cgroup, while the container waits at its
        gate.

        Raises:
            MesosGpuError, OSError: They cannot be set.
        """
        if launch.given is None or not launch.given.at_gate:
            return
        path = membership(pid).get("cgroup2", "/")
        if cgroup_names(ident).isdisjoint(path.split("/")) and not path.endswith(f"/{self._container}"):
            raise Unavailable(
                f"the container shares the cgroup {path} with others, so its GPU memory cannot be limited there",
                remedy="check how the Docker Engine makes cgroups: docker info",
            )
        for limit in launch.given.at_gate:
            limit(mounted()["cgroup2"] / path.lstrip("/"), launch.leave)

    def _has_ended(self) -> bool:
        return start_ticks(self._pid) is None

    def _let_through(self, enclosure: Enclosure) -> None:
        """Allow the granted devices in the executor's cgroup: a cgroup of version 1 cannot allow more than
        the one above it.
        """
        if self._given is not None and self._given.version == "cgroup1" and self._parent is not None:
            for rule in rules_of(enclosure.devices, enclosure.extra):
                (self._given.path / "devices.allow").write_text(str(rule))

    def _config(self, launch: Launch) -> ImageConfig:
        """Return the configuration of the image, which the engine fetches if need be.

        An image that a registry gave is used only if that registry shows it now, to the login of this launch: it may
        have been fetched with another login. An image that the operator loaded into the engine has no registry.
        """
        image = self._plan.image or ""
        try:
            reference = Reference.of(image)
            auth = _registry_auth(login_for(launch, reference.host, reference.repository), reference)
            here = self._here(image, reference)
            if here is None or self._plan.pull or _digests_of(here, reference):
                digest = self._shown(image, reference, here, auth)
                if digest is not None and (here is None or digest not in _digests_of(here, reference)):
                    self._engine.pull(image, auth)
                    here = self._engine.image(image)
            if here is None:
                raise NotStarted(f"the Docker Engine has no image {image}", Outcome(infrastructure=True))
            check_platform({"os": here.platform[0], "architecture": here.platform[1]}, image)
        except (NotFound, Unavailable) as error:
            # Not the infrastructure's fault, even if the engine is missing: placement would choose the same
            # host again.
            raise NotStarted(f"{error.what}; {error.remedy}") from error
        return here.config

    def _here(self, image: str, reference: Reference) -> LocalImage | None:
        """Return an image of this host by its name alone; engines know images by parts of their ids, too."""
        here = self._engine.image(image)
        named = here is not None and any(
            name == (*reference.place, reference.reference) for name in _names(here)
        )
        return here if named else None

    def _shown(self, image: str, reference: Reference, here: LocalImage | None, auth: str) -> str | None:
        """Return the digest of the image in its registry.

        None if the registry is down, and showed the image of this host without a login before.
        """
        place, public, now = "/".join(reference.place), PublicImages(ledger.directory()), time.time()
        known_images = (
            [f"{place}@{digest}" for digest in _digests_of(here, reference)] if here is not None else []
        )
        try:
            digest = self._engine.shown_digest(image, auth)
        except NotFound:
            for image_digest in known_images if not auth else ():
                public.remove(image_digest)
            raise
        except Unavailable as error:
            if self._plan.pull or not any(public.is_public(each, now) for each in known_images):
                raise NotStarted(f"{error.what}; {error.remedy}", Outcome(infrastructure=True)) from error
            print(f"{error.what}; the image that this host has is used", file=sys.stderr, flush=True)
            return None
        if not auth:
            public.add(f"{place}@{digest}", now)
        return digest

    def _copy(self, output: Output) -> None:
        try:
            output.copy(1, 2)
        except (MesosGpuError, OSError) as error:
            print(f"the output of the container is lost from here on: {error}", file=sys.stderr, flush=True)

    def pid(self) -> int | None:
        """Return the pid of the first process, as `Run.pid`."""
        return self._pid or None

    def inner(self) -> None:
        """Return None, as a Docker container has a pid namespace and needs no inner process."""

    def streams(self) -> tuple[int | None, int | None]:
        """Return the files of the output, as `Run.streams`."""
        return (1, 2)

    def wait(self) -> Ended:
        """Wait for the end of the container, as `Run.wait`."""
        try:
            ended = self._engine.wait(self._name)
        finally:
            self._ended.set()
        if self._copier is not None:
            self._copier.join(OUTPUT_S)
        used = most_used(self._limits.memory) if self._parent is not None else None
        seen = ended.oom_killed or (
            self._witness is not None and ended.exit_status == SIGKILLED and self._witness.end()
        )
        limit = out_of_memory(self._plan.mem_mib, used) if seen else ""
        return Ended(ended.exit_status, why=ended.error, infrastructure=bool(ended.error), limit=limit)

    def notify(self, number: int) -> None:
        """Signal the container's processes, which are all below its first one, as `Run.notify`."""
        if not self._ended.is_set():
            processes.send(processes.handling(self._tree(), number), number)

    def terminate(self, grace_s: float) -> None:
        """End the container, as `Run.terminate`."""
        if grace_s > 0:
            first = processes.eldest(self._tree())
            processes.terminate(self._tree, first, grace_s, self._ended.is_set)
        if not self._ended.is_set():
            self._engine.signal(self._name, KILL)

    def _tree(self) -> list[int]:
        """Return the container's processes; without the init of the engine, which hands signals to the first one."""
        if not self._pid or start_ticks(self._pid) != self._began:
            return []
        below = processes.descendants(self._pid)
        return below if self._plan.docker.init else [self._pid, *below]

    def abort(self) -> None:
        """Cut a start short, as `Run.abort`."""
        self._aborted.set()

    def clear(self) -> list[int]:
        """Remove the container, as `Run.clear`."""
        if self._gate is not None:
            self._gate.close()
        if self._created:
            self._engine.remove(self._name)
        if self._output is not None:
            self._output.close()
        return []


def _names(image: LocalImage) -> Iterator[tuple[str, str, str]]:
    """Yield registry, repository, and tag or digest of each name of an image."""
    for name in image.names:
        with contextlib.suppress(NotFound):  # <none>:<none>
            reference = Reference.of(name)
            yield (*reference.place, reference.reference)


def _digests_of(image: LocalImage, reference: Reference) -> set[str]:
    """Return the digests under which the registry of a name gave an image of this host."""
    return {mark for *place, mark in _names(image) if tuple(place) == reference.place and ":" in mark}


def _registry_auth(login: Login | None, reference: Reference) -> str:
    """Return the header X-Registry-Auth of the Docker Engine API; empty without a login."""
    if login is None:
        return ""
    host = reference.place[0]
    auth = {"serveraddress": "https://index.docker.io/v1/" if host == HUB else host}
    if login.identity_token:
        auth["identitytoken"] = login.identity_token
    else:
        auth |= {"username": login.user, "password": login.password}
    return base64.urlsafe_b64encode(json.dumps(auth).encode()).decode()


def _options(plan: Assignment) -> DockerOptions:
    """The engine's, for a job that begins where the files are that came along with it, if it names no place itself."""
    if plan.upload is None or plan.docker.directory:
        return plan.docker
    return replace(plan.docker, directory=SANDBOX)


def groups_of(name: str, gid: int) -> tuple[int, ...]:
    """Return the supplementary groups of a user on this host."""
    return tuple(group for group in os.getgrouplist(name, gid) if group != gid)


def memory_cgroup(container: str, root: Path = Path("/")) -> str | None:
    """Return the cgroup in which Mesos accounts the executor's memory; None if the executor has none of its
    own.
    """
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(errors="surrogateescape").splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(",") and path.rpartition("/")[2] == container:
                return path
    return None
