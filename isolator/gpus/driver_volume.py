"""The driver volume of this host: which one a task gets, who has which, and the monitor's care for them.

Lean: the executor imports it; what builds is imported when it is needed.
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

if TYPE_CHECKING:  # it costs each executor what only the monitor need pay
    import logging

    from volumes.model import DriverFiles, Plan
    from volumes.shim import Shim

KIND: Final = "volume"  # of a trace: a lease, for as long as the holding is in the ledger
AT_WORK: Final = "it is being built"
AWAITED_S, AWAITED_POLL_S = 20.0, 0.1
RETRY_S: Final = 60.0
LOOK_AGAIN_S: Final = 3600.0  # packages of the same driver version may be added
VERIFY_S: Final = 24 * 3600.0
NVML_LINKS: Final = (
    "nvml"  # below the directory of volumes: links to the host's NVML as long as there is no volume
)
_MOUNTED: Final = re.compile(r"/builds/([^/\s]+)")


def _logger() -> "logging.Logger":
    import logging

    return logging.getLogger("isolator.monitor")


def for_tasks(env: Mapping[str, str], inventory: Inventory, variant: str = "") -> Path | None:
    """The build that a task started now gets; None: this host has none of its driver. Takes microseconds.

    `variant`: as `isolator.shares.shim.sources.variant()` for a task with a share that the shim enforces.
    """
    if inventory.driver_version is None:
        return None
    return current(default_path(env), key_of(inventory.driver_version, variant))


def awaited(env: Mapping[str, str], inventory: Inventory, timeout_s: float = AWAITED_S) -> Path | None:
    """Wait for `for_tasks` while the monitor builds the volume, as on a host that has just come up; None: it has
    none."""
    deadline = time.monotonic() + timeout_s
    while True:
        build = for_tasks(env, inventory)
        if build is not None or inventory.volume_problem != AT_WORK or time.monotonic() > deadline:
            return build
        time.sleep(AWAITED_POLL_S)


def lease(build: Path | None) -> tuple[Trace, ...]:
    """What goes into the ledger, so that nobody removes it while the task may use it."""
    return () if build is None else (Trace(KIND, str(build)),)


def driver_root(env: Mapping[str, str]) -> Path:
    """Below which this host's driver is: MESOS_GPU_DRIVER_ROOT, else /."""
    return Path(env.get("MESOS_GPU_DRIVER_ROOT") or "/")


def libraries_of_module(env: Mapping[str, str]) -> Path | None:
    """Return a directory with NVML of the driver whose kernel module is loaded; None if no module is loaded, or no
    library of it is found.

    NVML of another version than the module refuses to work (NVML_ERROR_LIB_RM_VERSION_MISMATCH): after an upgrade of
    packages without a reload, the host's own does. It is in the volume of that driver; as long as there is none, where
    the host has it, which the host's loader may not know. A directory of links has it then, and no other library of the
    host.
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
    except MesosGpuError as error:  # the keeper of the volume reports it
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
    """Return files of the host by the names under which NVML, and what it needs of the driver, are loaded."""
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
    wanted = [name for name in source_by_name if stem_of(name) == "libnvidia-ml"]
    while wanted:
        name = wanted.pop()
        if name not in sources and name in source_by_name and stem_of(name) not in LOADERS:
            sources[name] = source_by_name[name]
            wanted += needed_by_source.get(sources[name], ())
    return sources


def _link(directory: Path, targets: Mapping[str, Path]) -> None:
    """Have a directory with links to files, by name, and with no other. Each link is replaced in one step."""
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
    """Who has which build: tasks by their leases, and mount namespaces of others, as containers by CDI are.

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
    return {name: tuple(sorted(who)) for name, who in users_by_build.items()}


def mounted() -> dict[str, int]:
    """Builds that are mounted somewhere, and for each a process that sees it."""
    pid_by_build: dict[str, int] = {}
    seen: set[str] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):  # it has ended, or is not ours to look at
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace not in seen:
                text = Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
                seen.add(namespace)
                for line in text.splitlines():
                    for name in _MOUNTED.findall(line.split()[3]):
                        pid_by_build.setdefault(name, pid)
    return pid_by_build


class Keeper:
    """Has the volume of this host's driver built, beside the monitor's own work, and old ones removed."""

    def __init__(
        self, env: Mapping[str, str], ledger: Ledger, shim: "Callable[[], Shim | None]" = lambda: None
    ) -> None:
        """Nothing is built yet. `shim`: our libraries for shares, built if need be; None: this host uses none."""
        self._env, self._ledger, self._shim = env, ledger, shim
        from volumes.store import Store

        self._store = Store(default_path(env))
        self._thread: threading.Thread | None = None
        self._version: str | None = None
        self._again_at = self._verify_at = 0.0  # monotonic
        self._problem = ""

    def look(self, inventory: Inventory) -> Inventory:
        """The inventory with what is to be reported of the volume; a build is begun if one is due."""
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
        """Whether it works on a volume now."""
        return self._thread is not None and self._thread.is_alive()

    def look_again(self) -> None:
        """Have the next look do all that is to be done, whenever it was done last."""
        self._again_at = 0.0

    def _build(self, version: str, simulated: bool) -> None:
        try:
            self._have(version, simulated)
            variant = None if simulated else self._have_variant(version)  # None: what somebody gave it stays
            self._remove_old(version, variant)
        except (MesosGpuError, OSError) as error:
            self._problem = error.what if isinstance(error, MesosGpuError) else str(error)
            _logger().error("the driver volume of %s: %s", version, error)
        else:
            self._problem = ""
            self._again_at = time.monotonic() + LOOK_AGAIN_S

    def _have(self, version: str, simulated: bool) -> None:
        from volumes.build import build, make
        from volumes.model import Plan
        from volumes.places import given_by
        from volumes.store import verify

        if simulated and not self._env.get("MESOS_GPU_DRIVER_ROOT"):
            if self._store.current(version) is not None:  # somebody gave it one
                return
            built = build(self._store.path, Path("/"), Plan(version), held=self._held, simulated=True)
        else:
            root, given = driver_root(self._env), given_by(self._env)
            asked, nvml = (None, version) if root == Path("/") else (version, None)
            built = make(self._store.path, root, asked, nvml=nvml, given=given, held=self._held)
            if time.monotonic() >= self._verify_at and not built.new and (wrong := verify(built.volume)):
                _logger().error("the driver volume %s: %s: built anew", built.path, "; ".join(wrong))
                built = make(
                    self._store.path, root, asked, nvml=nvml, given=given, held=self._held, anew=True
                )
        self._verify_at = time.monotonic() + VERIFY_S
        if built.new:
            _logger().info(
                "built the driver volume %s in %.2f s: %s", built.path, built.took_s, dict(built.how)
            )
            for each in built.warnings:
                _logger().warning("the driver volume leaves out %s: %s", each.path, each.reason)

    def _held(self) -> frozenset[str]:
        return frozenset(holders(self._ledger))

    def _have_variant(self, version: str) -> str:
        """Have the variant with our libraries, too; what it is called. Without it shares are enforced by other means,
        and whole cards know nothing of it: a failure is told and no more."""
        from volumes.build import make
        from volumes.places import given_by

        try:
            shim = self._shim()
            if shim is None:
                return ""
            root = driver_root(self._env)
            asked, nvml = (None, version) if root == Path("/") else (version, None)
            given = given_by(self._env)
            built = make(self._store.path, root, asked, nvml=nvml, given=given, held=self._held, shim=shim)
        except (MesosGpuError, OSError) as error:
            _logger().error("the driver volume of %s for shares: %s", version, error)
            return ""
        if built.new:
            _logger().info("built the driver volume %s in %.2f s, for shares", built.path, built.took_s)
        return shim.variant

    def _remove_old(self, version: str, variant: str | None) -> None:
        """What a newer driver, a newer build, or newer libraries of ours replaced, once no task has it. `variant`: that
        is wanted; None: any."""
        removed = self._store.collect(
            self._held,
            lambda volume: (
                volume.current
                and not is_older(volume.version, version)
                and (variant is None or volume.variant in ("", variant))
            ),
        )
        for volume in removed:
            _logger().info("removed the driver volume %s: nobody has it", volume.path)


def is_older(version: str, other: str) -> bool:
    """Compare versions by number."""
    return _numbers(version) < _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(text) for text in re.findall(r"\d+", version)]
