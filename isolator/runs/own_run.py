"""Run of an image by the executor itself, as a process tree below it with a root of its own.

It needs neither Mesos' containerizer nor an engine. Layers are unpacked once for a host
(`isolator.images.store`). The process that becomes the task mounts them (`isolator.devices.image_root`), and
is enclosed as every task.
"""

import contextlib
import errno
import os
import posixpath
import pwd
import re
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isolator.agent.flags import flags_of_own_agent
from isolator.confinement.apart import Apart, apart_of
from isolator.confinement.apart_sys import SCOPES_SINCE, landlock_abi
from isolator.confinement.enclosure import Enclosure
from isolator.devices.image_root import MAX_LAYERS, MERGED, UPPER, WORK, RootOrder
from isolator.gpus.ledger import DEFAULT_DIRECTORY, Trace
from isolator.host import rootfs
from isolator.host.not_started import KILLED_BEFORE_START, NotStarted
from isolator.images.content import Content, content_of
from isolator.images.reference import Reference
from isolator.images.registry import asked_host
from isolator.images.source import directory_of, registry_of
from isolator.images.store import DIRECTORY, Held, Store
from isolator.runs.environment import PATH
from isolator.runs.host_run import HostRun, confined, secret_files
from isolator.runs.image_run import (
    SANDBOX,
    Prepared,
    argv_of,
    brings_libcuda,
    command_of,
    login_for,
    prepare,
    refused_without_isolation,
    user_of,
)
from isolator.runs.launcher import Launcher, LaunchFailed, Order
from isolator.runs.run import Launch, container_of, sandbox_of, secret_env
from mesos_gpu.errors import Damaged, MesosGpuError, NotFound
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome

if TYPE_CHECKING:
    from isolator.confinement.inner_calls import Inner

#: Capabilities of an image's root (linux/capability.h), as with Mesos: CHOWN, DAC_OVERRIDE, FOWNER, FSETID,
#: KILL, SETGID, SETUID.
ROOT_KEEPS: Final = (0, 1, 3, 4, 5, 6, 7)
MAX_ACCOUNTS_BYTES: Final = 1 << 20  # of an image's /etc/passwd or /etc/group
OPAQUE_ATTRIBUTE: Final = "trusted.overlay.opaque"  # attribute of directories that hide those of lower layers
MAX_DIRECTORY: Final = 1024  # in characters of WorkingDir
_ID: Final = re.compile(r"[0-9]{1,10}")  # id of a user or group
#: Errors that come from files of the image at a mount's place: the image's own fault.
_OF_IMAGE: Final = frozenset(
    {
        errno.ELOOP,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOENT,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ESTALE,
        errno.EROFS,
    }
)


class OwnRun(HostRun):
    """`Run` of an image by the launcher.

    Args:
        plan: Launch of the task.
        launcher: Process that becomes the task.
        inventory: Cards of this host.
        own: Environment of the executor.
    """

    def __init__(
        self, plan: Assignment, launcher: Launcher, inventory: Inventory, own: Mapping[str, str]
    ) -> None:
        super().__init__(launcher)
        self._plan, self._inventory, self._own = plan, inventory, own
        self._store = Store.of(own, own.get("MESOS_GPU_NODE_DIR") or DEFAULT_DIRECTORY)
        # On the disk of the sandbox, if the agent's work_dir is known, so that the task can fill no other.
        beside = rootfs.place_of(sandbox_of(own))
        self._place = Path(beside) if beside else self._store.root_of(container_of(own))
        self._held: Held | None = None
        self._as_root = False
        self._aborted = threading.Event()

    def traces(self) -> tuple[Trace, ...]:
        """Return the trace of files that the task writes to its image; layers are free when the executor
        ends.
        """
        return (Trace("rootfs", str(self._place)),)

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """Return the enclosure unchanged: a task with an image needs the same as one without."""
        refused_without_isolation(enclosure.isolated)
        return enclosure

    def start(self, launch: Launch) -> None:
        """Start the command, as `Run.start`; fetch missing layers first."""
        assert self._plan.image is not None
        content = self._content(launch, self._plan.image)
        command_of(self._plan, content.config)
        if not 0 < len(content.layers) <= MAX_LAYERS:
            raise NotStarted(
                f"{self._plan.image} has {len(content.layers)} layers, but must have 1 to {MAX_LAYERS}"
            )
        self._held = self._hold(content)
        user = user_of(launch)
        is_of_image = user.pw_uid == 0 and self._plan.user is None and bool(content.config.user)
        if is_of_image:
            user = _user_in(content.config.user, self._held.paths, self._plan.image)
        self._as_root, apart = user.pw_uid == 0, apart_of(launch.own)
        if self._as_root:
            _check_scopes(apart)
        prepared = prepare(launch, content.config, self._inventory, user=user)
        self._make_place()
        order = confined(
            self._order(launch, content.config, prepared, apart, by_name=not is_of_image), launch.enclosure
        )
        if self._aborted.is_set():
            raise NotStarted(KILLED_BEFORE_START)
        try:
            self.launcher.start(order)
        except LaunchFailed as error:
            raise self._explained(error, order) from error
        self.watch(launch)

    def _content(self, launch: Launch, image: str) -> Content:
        """Return the configuration and layers of the image from its registry."""
        denied = launch.enclosure.fence.denied if launch.enclosure.fence is not None else ()
        try:
            registry, reference, login = self._registry(), Reference.of(image), None
            if directory_of(registry) is None:
                login = login_for(launch, asked_host(registry, reference), reference.repository)
            return content_of(image, registry=registry, login=login, denied=denied)
        except (NotFound, Damaged) as error:
            raise NotStarted(f"{error.what}; {error.remedy}") from error

    def _hold(self, content: Content) -> Held:
        """Unpack the layers; layers that the host already has are used only if the registry shows them to
        this job.
        """
        with contextlib.ExitStack() as unless_shown:
            try:
                held = self._store.hold(content.layers, self._aborted.is_set)
                unless_shown.callback(held.close)
                content.see_layers(self._aborted.is_set)
            except NotFound as error:
                raise NotStarted(f"{error.what}; {error.remedy}") from error
            except InterruptedError:
                raise NotStarted(KILLED_BEFORE_START) from None
            unless_shown.pop_all()
            return held

    def _registry(self) -> str:
        if self._own.get("MESOS_GPU_IMAGE_REGISTRY"):
            return registry_of({}, self._own)
        return registry_of(flags_of_own_agent(self._own), self._own)

    def _make_place(self) -> None:
        """Make the directories that overlayfs needs; the first gets owner and mode of the image's root, which
        the task sees.
        """
        assert self._held is not None
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        for name in (UPPER, WORK, MERGED):
            (self._place / name).mkdir(mode=0o700)
        status = os.stat(self._held.paths[-1])
        os.chown(self._place / UPPER, status.st_uid, status.st_gid)
        (self._place / UPPER).chmod(status.st_mode & 0o7777)

    def _order(
        self, launch: Launch, config: ImageConfig, prepared: Prepared, apart: Apart, *, by_name: bool
    ) -> Order:
        assert self._held is not None
        plan, user = self._plan, prepared.user
        groups = tuple(os.getgrouplist(user.pw_name, user.pw_gid)) if by_name else ()
        env = {"PATH": PATH, "HOME": SANDBOX, **config.env, **prepared.env, **secret_env(launch)}
        libraries = env.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
        root = RootOrder(
            place=str(self._place),
            layers=self._held.paths,
            sandbox=os.path.realpath(launch.sandbox),
            inside=SANDBOX,
            mounts=(*prepared.binds, *prepared.share),
            identities=prepared.given,
            shm_mib=round(plan.mem_mib),
            directory=SANDBOX if plan.upload is not None else _directory(config),
        )
        return Order(
            argv=argv_of(plan, config),
            env=env,
            cwd=SANDBOX,
            user=(user.pw_uid, user.pw_gid, groups),
            keeps=ROOT_KEEPS,
            domain=apart.domain,
            sockets=not launch.reaches_sockets,
            filter=apart.program.hex(),
            secret=launch.secrets is not None,
            secret_files=secret_files(launch),
            inner=not self._as_root,  # commands cannot join an image that runs as root: see `joining.Place`
            root=asdict(root),
            libraries=tuple(libraries) if prepared.strict else None,
        )

    def inner(self) -> "Inner | None":
        """Return the inner process; see `Run.inner`."""
        return None if self._as_root else super().inner()

    def abort(self) -> None:
        """Cut a start short, as `Run.abort`."""
        self._aborted.set()

    def clear(self) -> list[int]:
        """Kill what is left, as `Run.clear`, and release the layers."""
        left = super().clear()
        if self._held is not None and not left:
            self._held.close()
        return left

    def _explained(self, error: LaunchFailed, order: Order) -> NotStarted | MesosGpuError:
        program, why = order.argv[0], error.strerror
        match error.step:
            case "exec":  # exit statuses of a shell (POSIX, 2.8.2)
                status = 127 if error.errno == errno.ENOENT else 126
                return NotStarted(f"cannot start {program!r}: {why}", Outcome(exit_status=status))
            case "libcuda" if error.errno == errno.EEXIST:
                return brings_libcuda(str(why))
            case "libcuda" if error.errno == errno.E2BIG:
                return NotStarted(str(why))
            case "image" if error.errno in _OF_IMAGE:
                return NotStarted(
                    f"{self._plan.image} has files in the way of what its task needs: {why}; build it without them"
                )
            case "directory":
                where = order.root["directory"] if order.root is not None else ""
                return NotStarted(f"the WorkingDir {where} of {self._plan.image} cannot be entered: {why}")
            case "links":
                return NotStarted(f"a secret's file cannot be shown in the sandbox: {why}")
            case "overlay":
                return MesosGpuError(
                    f"the layers of {self._plan.image} cannot be mounted: {why}",
                    remedy="check that the kernel has overlayfs (modprobe overlay), and that the agent's work_dir and "
                    f"{DIRECTORY} are on ext4, xfs or btrfs",
                )
        return MesosGpuError(
            f"the task cannot be isolated ({error.step}): {why}", remedy="run mesos-gpu doctor on this host"
        )


def _check_scopes(apart: Apart) -> None:
    """Check that signals of an image's root stay in the task, as processes of the host's root have the same
    uid.

    Raises:
        NotStarted: They would not.
    """
    if not apart.domain or landlock_abi() < SCOPES_SINCE:
        raise NotStarted(
            "an image can run as root only where Landlock confines its signals (Linux 6.12), unlike on this host; name "
            "a user, or use --container-engine docker"
        )


def _directory(config: ImageConfig) -> str:
    """Return the directory in which an image's command starts.

    Raises:
        NotStarted: The image's WorkingDir is not a path.
    """
    path = config.directory or SANDBOX
    if len(path) > MAX_DIRECTORY or "\0" in path:
        raise NotStarted(f"the image's WorkingDir is {path[:100]!r}, which is not a path")
    return posixpath.normpath(f"/{path.lstrip('/')}")


# --- accounts of an image


def _user_in(user_text: str, layers: Sequence[str], image: str) -> pwd.struct_passwd:
    """Return the user of an image that may run as root, by the image's own accounts.

    Args:
        user_text: USER[:GROUP], each a name or a number.
        layers: Directories of the layers, the lowest first.
        image: Name of the image.

    Raises:
        NotStarted: The image has no such user or group.
    """
    name, _, group = user_text.partition(":")
    accounts = _accounts("etc/passwd", layers, 4)
    entry = next((account for account in accounts if name in (account[0], account[2])), None)
    if entry is None and not _ID.fullmatch(name):
        raise NotStarted(f"{image} names the user {name[:100]!r}, which is not in its /etc/passwd")
    uid, gid = (entry[2], entry[3]) if entry is not None else (name, "0")
    if group:
        groups = _accounts("etc/group", layers, 3)
        gid = next((account[2] for account in groups if group in (account[0], account[2])), group)
    if not (_ID.fullmatch(uid) and _ID.fullmatch(gid) and max(int(uid), int(gid)) < (1 << 32) - 1):
        raise NotStarted(
            f"{image} names the user {user_text[:100]!r}, which its accounts map to {uid[:100]}:{gid[:100]}, no "
            "numbers"
        )
    return pwd.struct_passwd((name, "x", int(uid), int(gid), "", "/", "/bin/sh"))


def _accounts(path: str, layers: Sequence[str], count: int) -> list[list[str]]:
    """Return lines of a file of the image, with their fields; those with too few are left out."""
    texts = (_text_in(layer, path) for layer in reversed(layers))
    text = next((text for text in texts if text is not None), "")
    return [line.split(":") for line in text.splitlines() if line.count(":") >= count - 1]


def _text_in(layer: str, path: str) -> str | None:
    """Return the text of a file of a layer; "" if the layer hides the file of lower layers; None if lower
    layers decide.

    Only directories merge with what lower layers have at their path (overlayfs.rst), and links are not
    followed.
    """
    place, is_opaque = layer, False
    for name in path.split("/"):
        place = f"{place}/{name}"
        try:
            mode = os.lstat(place).st_mode
        except FileNotFoundError:
            return "" if is_opaque else None
        if not stat.S_ISDIR(mode):
            break
        is_opaque = is_opaque or OPAQUE_ATTRIBUTE in os.listxattr(place)
    if place != f"{layer}/{path}" or not stat.S_ISREG(mode):
        return ""
    with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read(MAX_ACCOUNTS_BYTES).decode(errors="replace")
