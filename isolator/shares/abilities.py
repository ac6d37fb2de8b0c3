"""What this host can use to keep tasks to shares of its cards: each ability is tried, or why it is not there is said.

The node monitor reports it with each card; `mesos-gpu node doctor` shows it. Simulated cards have what their file says.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from isolator.devices.cgroups import OWN_ROOT, Cgroup
from isolator.gpus.nvml_child import NvmlCalls
from isolator.shares.driver import limits
from isolator.shares.mps import ability as mps
from isolator.shares.shim import ability as shim_ability
from mesos_gpu.adapters.nvml.mig import MINORS
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.host_settings import MIG

AGAIN_S: Final = 600.0  # a package may be installed, a module loaded with other parameters
RETRY_S: Final = 60.0
FIRST_S: Final = 5.0  # a first report waits for the first look, but no longer
RESERVE: Final = "MESOS_GPU_SHARE_RESERVE_MIB"
#: What the driver keeps of a card for a server of MPS, where one may be started. Source: NVIDIA KAI-Scheduler, which
#: subtracts as much; measured by its authors, not by us.
MPS_RESERVE_MIB: Final = 1024
FIRST_WITH_LIMITS: Final = 615  # the first driver with memory limits by cgroup
_BY_CGROUP: Final = (Ability.DMEM, Ability.MISC)
CAN: Final = "shares are enforced by"
logger = logging.getLogger("isolator.monitor")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator says of shares on this host.

    Attributes:
        mig: "static": instances that operators made are shares; "dynamic": the host makes and removes them; "off".
        reserve_mib: What is kept of each card beside what its driver reports; None: what MPS takes, where it is used.
    """

    mig: str = "static"
    reserve_mib: int | None = None


def settings_of(env: Mapping[str, str]) -> Settings:
    """MESOS_GPU_MIG and MESOS_GPU_SHARE_RESERVE_MIB of the monitor's environment; sees those of MPS, too.

    Raises:
        BadConfiguration: One is something else; names it.
    """
    mig, reserve = MIG.of(env), env.get(RESERVE) or ""
    if reserve and not (reserve.isascii() and reserve.isdigit()):
        raise BadConfiguration(
            f"{RESERVE} is {reserve!r}", remedy="set it to a whole number of MiB, 0 or more"
        )
    mps.any_percentage(env)  # executors read both, and would refuse each share by MPS
    mps.across_users(env)
    return Settings(mig, int(reserve) if reserve else None)


@dataclass(frozen=True, slots=True)
class Known:
    """What a look has shown: of the host, and of each card; "": it can be used, else why not."""

    host: Mapping[Ability, str] = field(default_factory=dict)
    cards: Mapping[GpuId, Mapping[Ability, str]] = field(default_factory=dict)

    def of(self, gpu: GpuId) -> dict[Ability, str]:
        """Both of one card."""
        return {**self.host, **self.cards.get(gpu, {})}


class Abilities:
    """Looks at this host from a thread, now and then."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        root: Path = Path("/"),
        calls: NvmlCalls | None = None,
        cgroups: Path = limits.CGROUPS,
        again_s: float = AGAIN_S,
    ) -> None:
        """Nothing is known yet.

        Args:
            env: The monitor's environment, which is that of this host's executors.
            root: Whose /proc is read.
            calls: What asks the driver; None: as `env` says.
            cgroups: Where cgroups are mounted.
            again_s: How long a look is good for.

        Raises:
            BadConfiguration: A setting that cannot be.
        """
        self._env, self._root, self._cgroups = env, root, cgroups
        self._calls, self._again_s = calls, again_s
        self._settings = settings_of(env)
        self._told: str | None = None  # why several users cannot have one server of MPS
        self._known: Known | None = None
        self._seen: tuple[object, ...] = ()  # what the last look was at
        self._due = 0.0
        self._thread: threading.Thread | None = None

    def completed(self, inventory: Inventory) -> Inventory:
        """The inventory with what each card's host can enforce; before the first look a card has nothing for shares."""
        if inventory.source != "nvml" or not any(gpu.sharing for gpu in inventory.gpus):
            return inventory
        seen = (inventory.driver_version, *((g.id, g.sharing and g.sharing.mig) for g in inventory.gpus))
        running = self._thread is not None and self._thread.is_alive()
        if not running and (seen != self._seen or time.monotonic() >= self._due):
            self._seen, self._due = seen, time.monotonic() + self._again_s
            self._thread = threading.Thread(target=self._look, args=(inventory,), daemon=True)
            self._thread.start()
            if self._known is None:
                self._thread.join(FIRST_S)
        known = self._known
        if known is None:
            return replace(inventory, gpus=tuple(replace(gpu, sharing=None) for gpu in inventory.gpus))
        return self._with_all(inventory, known)

    def at_once(self, inventory: Inventory) -> Inventory:
        """The inventory, completed by a look that is waited for."""
        return self._with_all(inventory, self.probed(inventory)) if inventory.source == "nvml" else inventory

    def _look(self, inventory: Inventory) -> None:
        try:
            self._known = self.probed(inventory)
        except Exception:  # whatever a probe may raise: what was known stands, and it is tried again soon
            self._due = time.monotonic() + RETRY_S
            logger.exception("what this host can enforce of shares cannot be told")

    def probed(self, inventory: Inventory) -> Known:
        """Try everything but the libraries, which take no time; may take as long as the driver's deadline."""
        if why := self._hindered():
            return Known(dict.fromkeys(Ability, why))
        version = inventory.driver_version or ""
        host = self._served(version)
        if why := self._unlimited(version):
            return Known({**host, **dict.fromkeys(_BY_CGROUP, why)})
        whole = [gpu.id for gpu in inventory.gpus if gpu.sharing and not gpu.sharing.mig]
        tried = self._tried(whole) if whole else {}
        return Known(host, {gpu: self._limited(why) for gpu, why in tried.items()})

    def _served(self, version: str) -> dict[Ability, str]:
        """Whether servers of MPS can be had."""
        try:
            return mps.probe(self._env, version)
        except (MesosGpuError, OSError) as error:
            return dict.fromkeys((Ability.MPS3, Ability.MPS2), _words(error))

    def _unlimited(self, version: str) -> str:
        """Why memory cannot be limited by cgroup, whatever the card; "": it is worth a try."""
        major = version.partition(".")[0]
        if not major.isdecimal() or int(major) < FIRST_WITH_LIMITS:
            return f"driver {version or 'none'} is older than {FIRST_WITH_LIMITS}"
        return limits.unfit(self._cgroups)

    def _hindered(self) -> str:
        """Why nothing at all can be enforced here; "": nothing is in the way."""
        if self._env.get("MESOS_GPU_ISOLATION") == "off":
            return "MESOS_GPU_ISOLATION=off: a task has no devices, cgroup and mounts of its own"
        return "" if os.geteuid() == 0 else "agents do not run as root"

    def _tried(self, uuids: list[GpuId]) -> dict[GpuId, str]:
        """Set and take away a limit of each card, on a cgroup that nothing is in; why it cannot be."""
        trial = Cgroup("cgroup2", self._cgroups / OWN_ROOT / f".abilities-{os.getpid()}", own=True)
        calls = self._calls or limits.calls_of(self._env)
        try:
            trial.create()
            try:
                limits.enable_dmem(trial.path, self._cgroups)
                said: dict[str, str] = calls.ask("try limits", uuids=uuids, cgroup=str(trial.path))
            finally:
                trial.remove()
        except (MesosGpuError, OSError) as error:
            return dict.fromkeys(uuids, _words(error))
        return {uuid: said.get(uuid, "the driver said nothing of it") for uuid in uuids}

    def _limited(self, why: str) -> dict[Ability, str]:
        """Which of the two it is, as the driver chose when it was loaded."""
        if why:
            return dict.fromkeys(_BY_CGROUP, why)
        if limits.has_dmem(self._cgroups):
            return {Ability.DMEM: "", Ability.MISC: "the kernel's dmem controller is used"}
        return {
            Ability.DMEM: "no dmem controller (Linux 6.14), or the driver does not use it",
            Ability.MISC: "",
        }

    def _divided(self, gpu: Gpu) -> dict[Ability, str]:
        """Whether the card's instances can be used; and then, that nothing else can."""
        if gpu.sharing is None or not gpu.sharing.mig:
            return {Ability.MIG: "its MIG mode is off"}
        others = [ability for ability in Ability if ability is not Ability.MIG]
        why = self._hindered() or self._undivided(gpu.sharing)
        return {Ability.MIG: why, **dict.fromkeys(others, "its MIG mode is on")}

    def _undivided(self, sharing: Sharing) -> str:
        if self._settings.mig == "off":
            return f"{MIG.name}=off"
        if not (self._root / MINORS).exists():
            return f"the driver has no /{MINORS}"
        if sharing.instances or (self._settings.mig == "dynamic" and sharing.profiles):
            return ""
        if self._settings.mig == "dynamic":
            return "the driver names no profiles of instances"
        return f"it has no instances: make them (nvidia-smi mig), or set {MIG.name}=dynamic"

    def _shim(self, inventory: Inventory) -> str:
        """Why our libraries cannot be used now; an operator's switch takes effect at once."""
        return self._hindered() or shim_ability.lacks(self._env, inventory)

    def _with_all(self, inventory: Inventory, known: Known) -> Inventory:
        shim = self._shim(inventory)
        served = {"mps_clients": mps.most_clients(inventory.cuda_version), "mps_users": self._has_all_users()}
        gpus = tuple(self._with(gpu, known, shim, served) for gpu in inventory.gpus)
        return replace(inventory, gpus=gpus)

    def _has_all_users(self) -> bool:
        """Whether several users may have one server of MPS; an operator who wants that is told why not."""
        why = mps.no_users(self._env) if mps.across_users(self._env) else "it is not wanted"
        if why != self._told and mps.across_users(self._env):
            logger.warning("tasks of several users %s one server of MPS%s", *_told_of(why))
        self._told = why
        return not why

    def _with(self, gpu: Gpu, known: Known, shim: str, served: Mapping[str, Any]) -> Gpu:
        """The card with abilities, and without what is kept of it. `served`: what is said of one with MPS."""
        if gpu.sharing is None:
            return gpu
        why = {Ability.SHIM: shim, **known.of(gpu.id), **_too_old(gpu), **self._divided(gpu)}
        abilities = tuple((ability, why[ability]) for ability in Ability if ability in why)
        profiles = gpu.sharing.profiles if self._settings.mig == "dynamic" else ()
        memory_mib = max(gpu.sharing.memory_mib - self._reserve_mib(gpu.sharing, why), 0)
        sharing = replace(
            gpu.sharing,
            memory_mib=memory_mib,
            abilities=abilities,
            profiles=profiles,
            **(served if _is_served(why) else {}),
        )
        return replace(gpu, sharing=sharing)

    def _reserve_mib(self, sharing: Sharing, why: Mapping[Ability, str]) -> int:
        """What nobody's share is counted from; instances have their memory, whatever else is on the card."""
        if sharing.mig:
            return 0
        if self._settings.reserve_mib is not None:
            return self._settings.reserve_mib
        return MPS_RESERVE_MIB if _is_served(why) else 0


def words_of(sharing: Sharing | None) -> str:
    """What a card can be shared by, and why not by the rest, in one line."""
    if sharing is None:
        return "its memory cannot be shared out"
    able = [ability.value for ability, why in sharing.abilities if not why]
    lacking = [f"{ability.value} ({why})" for ability, why in sharing.abilities if why]
    said = (
        f"{CAN} {', '.join(able)}: {sharing.memory_mib} MiB of each card"
        if able
        else "shares cannot be enforced"
    )
    said += "; users may share a server of MPS" if sharing.mps_users else ""
    return said + (f"; not {', '.join(lacking)}" if lacking else "")


def _words(error: Exception) -> str:
    return error.what if isinstance(error, MesosGpuError) else str(error)


def _told_of(why: str) -> tuple[str, str]:
    return ("cannot have", f": {why}") if why else ("may have", ", as the operator permits")


def _is_served(why: Mapping[Ability, str]) -> bool:
    """Whether a card may have a server of MPS."""
    return any(why.get(ability) == "" for ability in (Ability.MPS3, Ability.MPS2))


def _too_old(gpu: Gpu) -> dict[Ability, str]:
    """Why servers of MPS do not limit clients on that card; empty: they do, or nothing is known against it."""
    why = mps.too_old(gpu.compute_capability)
    return dict.fromkeys((Ability.MPS3, Ability.MPS2), why) if why else {}
