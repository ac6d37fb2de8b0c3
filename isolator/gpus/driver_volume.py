"""Driver volume of this host: the build for a task, leases on builds, and the monitor's builds and removals.

Lean: the executor imports it; what builds volumes is imported when needed.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isolator.gpus.ledger import Ledger, Trace
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.gpu import Inventory
from volumes.keys import current, default_path, key_of

if TYPE_CHECKING:  # deferred: only the monitor needs them, and each import slows an executor's start
    import logging

    from volumes.model import DriverFiles, Plan
    from volumes.shim import Shim

KIND: Final = "volume"  # kind of a trace: a lease that lasts as long as the holding is in the ledger
AT_WORK: Final = "it is being built"
AWAITED_S, AWAITED_POLL_S = 20.0, 0.1
RETRY_S: Final = 60.0
LOOK_AGAIN_S: Final = 3600.0  # packages of the same driver version may be added meanwhile
VERIFY_S: Final = 24 * 3600.0
#: Directory below that of volumes, with links to the host's NVML while there is no volume.
NVML_LINKS: Final = "nvml"
_MOUNTED: Final = re.compile(r"/builds/([^/\s]+)")


def _logger() -> "logging.Logger":
    import logging

    return logging.getLogger("isolator.monitor")


def for_tasks(env: Mapping[str, str], inventory: Inventory, variant: str = "") -> Path | None:
    """Return the build for a task that starts now; None if this host has none of its driver. Takes
    microseconds.

    Args:
        variant: Name of the libraries for shares (`isolator.shares.shim.sources.variant`); "" for tasks
            without them.
    """
    if inventory.driver_version is None:
        return None
    return current(default_path(env), key_of(inventory.driver_version, variant))


def awaited(env: Mapping[str, str], inventory: Inventory, timeout_s: float = AWAITED_S) -> Path | None:
    """Return the build for a task, or None, waiting while the monitor builds it, as on a host that has just
    booted.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        build = for_tasks(env, inventory)
        if build is not None or inventory.volume_problem != AT_WORK or time.monotonic() > deadline:
            return build
        time.sleep(AWAITED_POLL_S)


def lease(build: Path | None) -> tuple[Trace, ...]:
    """Return the traces for the ledger that keep a build from being removed while the task may use it."""
    return () if build is None else (Trace(KIND, str(build)),)


def driver_root(env: Mapping[str, str]) -> Path:
    """Return the root directory of this host's driver: MESOS_GPU_DRIVER_ROOT, else /."""
    return Path(env.get("MESOS_GPU_DRIVER_ROOT") or "/")


def libraries_of_module(env: Mapping[str, str]) -> Path | None:
    """Return a directory with NVML of the driver whose kernel module is loaded; None if no module or library
    is found.

    NVML of another version than the module refuses to work (NVML_ERROR_LIB_RM_VERSION_MISMATCH): after an
    upgrade of packages without a reload, this applies to the host's own. The right one is in the driver
    volume. While there is no volume, it is searched on the host, whose loader may not know it, and the result
    is a directory of links with no other library of the host.
    """
    from volumes.version import kernel_version

    root = driver_root(env)
    version = kernel_version(root) if root.is_dir() else None
    if version is None:
        return None
    build = current(default_path(env), version)
    return build / "lib64" if build else _nvml_of_host(root, version, env)


def _nvml_of_host(root: Path, version: str, env: Mapping[str, str]) -> Path | None:
    """Return a directory with links to the host's NVML, and to what it needs of the driver, and with nothing else.

    A program that has the host's own directory in LD_LIBRARY_PATH would load the C library of that directory, which
    may be of another root than the program.
    """
    from volumes.discover import discover
    from volumes.manifest import plan
    from volumes.places import given_by
    from volumes.roots import Root

    try:
        files = discover(root, given_by(env))
        sources = _nvml_sources(plan(files, version), files)
    except MesosGpuError as error:  # reported by the keeper of the volume
        _logger().debug("no NVML of driver %s: %s", version, error)
        return None
    if not sources:
        return None
    directory = default_path(env) / NVML_LINKS
    try:
        _link(directory, {name: Root(root).outside(path) for name, path in sources.items()})
    except OSError as error:
        _logger().warning(
            "NVML of driver %s is not loaded from %s: no links in %s: %s", version, root, directory, error
        )
        return None
    return directory


def _nvml_sources(made: "Plan", files: "DriverFiles") -> dict[str, str]:
    """Return the files of the host with NVML, and with the libraries of the driver that it needs, by name."""
    from volumes.manifest import LOADERS, stem_of

    top = "lib64/"
    source_by_target = {entry.target: entry.source for entry in made.entries}
    source_by_name = {
        path.removeprefix(top): s for path, s in source_by_target.items() if path.startswith(top)
    }
    for link in made.links:
        if link.target.startswith(top):
            source_by_name[link.name] = source_by_target[link.file]
    needed_by_source = {file.path: file.elf.needed for file in files.libraries if file.elf is not None}
    sources: dict[str, str] = {}
    pending = [name for name in source_by_name if stem_of(name) == "libnvidia-ml"]
    while pending:
        name = pending.pop()
        if name not in sources and name in source_by_name and stem_of(name) not in LOADERS:
            sources[name] = source_by_name[name]
            pending += needed_by_source.get(sources[name], ())
    return sources


def _link(directory: Path, targets: Mapping[str, Path]) -> None:
    """Make a directory contain exactly these links, by name; each is replaced atomically."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name, target in targets.items():
        link, new = directory / name, directory / f".{name}.{os.getpid()}.{threading.get_ident()}"
        if not link.is_symlink() or os.readlink(link) != str(target):
            new.unlink(missing_ok=True)
            new.symlink_to(target)
            new.replace(link)
    for path in directory.iterdir():
        if path.name not in targets and not path.name.startswith("."):
            path.unlink(missing_ok=True)


def holders(ledger: Ledger) -> dict[str, tuple[str, ...]]:
    """Return the users of each build: tasks by their leases, and pids of other mount namespaces, such as
    containers by CDI.

    Raises:
        MesosGpuError: The ledger cannot be used: then nothing may be removed.
    """
    users_by_build: dict[str, list[str]] = {}
    for holding in ledger.holdings():
        for trace in holding.traces:
            if trace.kind == KIND:
                users_by_build.setdefault(Path(trace.what).name, []).append(holding.task)
    leased = frozenset(users_by_build)
    for name, pid in mounted().items():
        if name not in leased:
            users_by_build.setdefault(name, []).append(f"pid {pid}")
    return {name: tuple(sorted(users)) for name, users in users_by_build.items()}


def mounted() -> dict[str, int]:
    """Return the builds that are mounted anywhere, each with a process that sees it."""
    pid_by_build: dict[str, int] = {}
    seen: set[str] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):  # the process has ended, or may not be read
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace not in seen:
                text = Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
                seen.add(namespace)
                for line in text.splitlines():
                    for name in _MOUNTED.findall(line.split()[3]):
                        pid_by_build.setdefault(name, pid)
    return pid_by_build


class Keeper:
    """Builder of the volume for this host's driver, in a thread beside the monitor's own work; it also
    removes old builds.

    Args:
        env: Environment of the monitor.
        ledger: The ledger of this host.
        shim: Function that returns our libraries for shares, built if need be, or None if this host uses
            none.
    """

    def __init__(
        self, env: Mapping[str, str], ledger: Ledger, shim: "Callable[[], Shim | None]" = lambda: None
    ) -> None:
        self._env, self._ledger, self._shim = env, ledger, shim
        from volumes.store import Store

        self._store = Store(default_path(env))
        self._thread: threading.Thread | None = None
        self._version: str | None = None
        self._again_at = self._verify_at = 0.0  # on the monotonic clock
        self._problem = ""

    def look(self, inventory: Inventory) -> Inventory:
        """Return the inventory with the state of the volume; start a build if it is time for one."""
        version = inventory.driver_version
        if version is None:
            return inventory
        running = self.busy()
        now = time.monotonic()
        if version != self._version and not running:
            self._version, self._problem, self._again_at = version, "", now
        if not running and now >= self._again_at:
            self._again_at = now + RETRY_S
            simulated = inventory.source == "simulated"
            self._thread = threading.Thread(target=self._build, args=(version, simulated), daemon=True)
            self._thread.start()
        if self._store.current(version) is not None:
            return replace(inventory, volume=version, volume_problem=self._problem)
        return replace(inventory, volume=None, volume_problem=self._problem or AT_WORK)

    def busy(self) -> bool:
        """Return whether a build is under way."""
        return self._thread is not None and self._thread.is_alive()

    def look_again(self) -> None:
        """Make the next look start a build, whenever the last one was."""
        self._again_at = 0.0

    def _build(self, version: str, simulated: bool) -> None:
        try:
            self._have(version, simulated)
            # None keeps volumes that an operator made for simulated GPUs
            variant = None if simulated else self._have_variant(version)
            self._remove_old(version, variant)
        except (MesosGpuError, OSError) as error:
            self._problem = error.what if isinstance(error, MesosGpuError) else str(error)
            _logger().error("the driver volume of %s: %s", version, error)
        else:
            self._problem = ""
            self._again_at = time.monotonic() + LOOK_AGAIN_S

    def _have(self, version: str, simulated: bool) -> None:
        """Build the volume if it is missing, outdated or damaged."""
        from volumes.build import build, make
        from volumes.model import Plan
        from volumes.places import given_by
        from volumes.store import verify

        if simulated and not self._env.get("MESOS_GPU_DRIVER_ROOT"):
            if self._store.current(version) is not None:  # an operator has made one
                return
            built = build(self._store.path, Path("/"), Plan(version), held=self._held, simulated=True)
        else:
            root, given = driver_root(self._env), given_by(self._env)
            version_arg, nvml = (None, version) if root == Path("/") else (version, None)
            built = make(self._store.path, root, version_arg, nvml=nvml, given=given, held=self._held)
            if time.monotonic() >= self._verify_at and not built.new and (wrong := verify(built.volume)):
                _logger().error("the driver volume %s: %s: building it again", built.path, "; ".join(wrong))
                built = make(
                    self._store.path, root, version_arg, nvml=nvml, given=given, held=self._held, anew=True
                )
        self._verify_at = time.monotonic() + VERIFY_S
        if built.new:
            _logger().info(
                "built the driver volume %s in %.2f s: %s", built.path, built.took_s, dict(built.how)
            )
            for omission in built.warnings:
                _logger().warning("the driver volume leaves out %s: %s", omission.path, omission.reason)

    def _held(self) -> frozenset[str]:
        return frozenset(holders(self._ledger))

    def _have_variant(self, version: str) -> str:
        """Build the variant with our libraries; return its name, or "" without one.

        An error is only logged: without the variant, shares are enforced by other means, and whole cards do
        not need it.
        """
        from volumes.build import make
        from volumes.places import given_by

        try:
            shim = self._shim()
            if shim is None:
                return ""
            root = driver_root(self._env)
            version_arg, nvml = (None, version) if root == Path("/") else (version, None)
            given = given_by(self._env)
            built = make(
                self._store.path, root, version_arg, nvml=nvml, given=given, held=self._held, shim=shim
            )
        except (MesosGpuError, OSError) as error:
            _logger().error("the driver volume of %s for shares: %s", version, error)
            return ""
        if built.new:
            _logger().info("built the driver volume %s in %.2f s, for shares", built.path, built.took_s)
        return shim.variant

    def _remove_old(self, version: str, variant: str | None) -> None:
        """Remove builds that no task uses and that a newer driver, build or version of our libraries has
        replaced.

        Args:
            variant: Name of the current variant; None keeps all variants.
        """
        removed = self._store.collect(
            self._held,
            lambda volume: (
                volume.current
                and not is_older(volume.version, version)
                and (variant is None or volume.variant in ("", variant))
            ),
        )
        for volume in removed:
            _logger().info("removed the driver volume %s: it is not used any more", volume.path)


def is_older(version: str, other: str) -> bool:
    """Return whether a version is lower than another by its numbers."""
    return _numbers(version) < _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(text) for text in re.findall(r"\d+", version)]
