"""Sharing abilities of this host: how it can enforce shares of its GPUs, found by trying, with a reason for
each missing one.

The node monitor reports the abilities with each card, and `mesos-gpu doctor` shows them. Simulated cards
have the abilities that their file lists.
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

AGAIN_S: Final = 600.0  # lifetime of a probe's result: packages and module parameters may change
RETRY_S: Final = 60.0
FIRST_S: Final = 5.0  # how long the first report waits for the first probe
RESERVE: Final = "MESOS_GPU_SHARE_RESERVE_MIB"
#: Memory that the driver keeps on a card for an MPS server, where one may be started. Source: NVIDIA
#: KAI-Scheduler subtracts this amount, which its authors measured and we did not.
MPS_RESERVE_MIB: Final = 1024
FIRST_WITH_LIMITS: Final = 615  # the first driver with memory limits by cgroup
_BY_CGROUP: Final = (Ability.DMEM, Ability.MISC)
CAN: Final = "shares are enforced by"
logger = logging.getLogger("isolator.monitor")


@dataclass(frozen=True, slots=True)
class Settings:
    """Operator settings for shares on this host.

    Attributes:
        mig: "static" if the MIG instances that operators made are shares, "dynamic" if the host makes and
            removes instances, "off" if instances are not shared.
        reserve_mib: MiB withheld from shares on each card. By default `MPS_RESERVE_MIB` on cards that can use
            MPS, 0 on others.
    """

    mig: str = "static"
    reserve_mib: int | None = None


def settings_of(env: Mapping[str, str]) -> Settings:
    """Read MESOS_GPU_MIG and MESOS_GPU_SHARE_RESERVE_MIB from the monitor's environment; also check the MPS
    settings.

    Raises:
        BadConfiguration: A setting has an invalid value; the message names it.
    """
    mig, reserve = MIG.of(env), env.get(RESERVE) or ""
    if reserve and not (reserve.isascii() and reserve.isdigit()):
        raise BadConfiguration(
            f"{RESERVE} is {reserve!r}", remedy="set it to a whole number of MiB, 0 or more"
        )
    mps.any_percentage(env)  # checked here because executors read both, and would refuse every MPS share
    mps.across_users(env)
    return Settings(mig, int(reserve) if reserve else None)


@dataclass(frozen=True, slots=True)
class Known:
    """Result of one probe; each ability maps to "" if usable, else to the reason why not.

    Attributes:
        host: Abilities of the host as a whole.
        cards: Abilities of single cards, by id; they override those of the host.
    """

    host: Mapping[Ability, str] = field(default_factory=dict)
    cards: Mapping[GpuId, Mapping[Ability, str]] = field(default_factory=dict)

    def of(self, gpu: GpuId) -> dict[Ability, str]:
        """Return the abilities of one card, those of its host included."""
        return {**self.host, **self.cards.get(gpu, {})}


class Abilities:
    """Periodic probe, in a thread, of the sharing abilities of this host.

    Args:
        env: Environment of the monitor, which executors of this host have, too.
        root: Directory whose /proc is read.
        calls: Client of the driver. By default the one that `env` selects.
        cgroups: Directory where cgroups are mounted.
        again_s: Seconds after which the host is probed again.

    Raises:
        BadConfiguration: A setting has an invalid value.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        root: Path = Path("/"),
        calls: NvmlCalls | None = None,
        cgroups: Path = limits.CGROUPS,
        again_s: float = AGAIN_S,
    ) -> None:
        self._env, self._root, self._cgroups = env, root, cgroups
        self._calls, self._again_s = calls, again_s
        self._settings = settings_of(env)
        self._told: str | None = None  # last reported reason why users cannot share an MPS server
        self._known: Known | None = None
        self._seen: tuple[object, ...] = ()  # driver version and MIG modes at the last probe
        self._due = 0.0
        self._thread: threading.Thread | None = None

    def completed(self, inventory: Inventory) -> Inventory:
        """Return the inventory with the sharing abilities of each card; probe in the background if they are
        outdated.

        Before the first probe has ended, cards have no sharing at all.
        """
        if inventory.source != "nvml" or not any(gpu.sharing for gpu in inventory.gpus):
            return inventory
        seen = (inventory.driver_version, *((g.id, g.sharing and g.sharing.mig) for g in inventory.gpus))
        running = self._thread is not None and self._thread.is_alive()
        if not running and (seen != self._seen or time.monotonic() >= self._due):
            self._seen, self._due = seen, time.monotonic() + self._again_s
            self._thread = threading.Thread(target=self._probe_abilities, args=(inventory,), daemon=True)
            self._thread.start()
            if self._known is None:
                self._thread.join(FIRST_S)
        known = self._known
        if known is None:
            return replace(inventory, gpus=tuple(replace(gpu, sharing=None) for gpu in inventory.gpus))
        return self._with_all(inventory, known)

    def at_once(self, inventory: Inventory) -> Inventory:
        """Return the inventory with the sharing abilities of each card, after a probe that is waited for."""
        return self._with_all(inventory, self.probed(inventory)) if inventory.source == "nvml" else inventory

    def _probe_abilities(self, inventory: Inventory) -> None:
        try:
            self._known = self.probed(inventory)
        except Exception:  # a probe may raise anything: keep the last result, and retry soon
            self._due = time.monotonic() + RETRY_S
            logger.exception("the sharing abilities of this host cannot be probed; retrying")

    def probed(self, inventory: Inventory) -> Known:
        """Probe all abilities but that of our CUDA libraries (cheap, so checked for each report).

        May take as long as the driver's deadline.
        """
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
        """Return the abilities of MPS, by protocol."""
        try:
            return mps.probe(self._env, version)
        except (MesosGpuError, OSError) as error:
            return dict.fromkeys((Ability.MPS3, Ability.MPS2), _words(error))

    def _unlimited(self, version: str) -> str:
        """Return why memory cannot be limited by cgroup on any card; "" if it is worth a try on each."""
        major = version.partition(".")[0]
        if not major.isdecimal() or int(major) < FIRST_WITH_LIMITS:
            return f"driver {version or 'none'} is older than {FIRST_WITH_LIMITS}"
        return limits.unfit(self._cgroups)

    def _hindered(self) -> str:
        """Return why this host can enforce no share at all; "" if it may."""
        if self._env.get("MESOS_GPU_ISOLATION") == "off":
            return "MESOS_GPU_ISOLATION=off: a task has no devices, cgroup and mounts of its own"
        return "" if os.geteuid() == 0 else "agents do not run as root"

    def _tried(self, uuids: list[GpuId]) -> dict[GpuId, str]:
        """Set and remove a memory limit for each card on an empty cgroup; return the error for each, "" if it
        worked.
        """
        trial = Cgroup("cgroup2", self._cgroups / OWN_ROOT / f".abilities-{os.getpid()}", own=True)
        calls = self._calls or limits.calls_of(self._env)
        try:
            trial.create()
            try:
                limits.enable_dmem(trial.path, self._cgroups)
                refusals: dict[str, str] = calls.ask("try limits", uuids=uuids, cgroup=str(trial.path))
            finally:
                trial.remove()
        except (MesosGpuError, OSError) as error:
            return dict.fromkeys(uuids, _words(error))
        return {uuid: refusals.get(uuid, "the driver gave no answer for this card") for uuid in uuids}

    def _limited(self, why: str) -> dict[Ability, str]:
        """Return the abilities of the two cgroup controllers; the driver chose one of them when it was
        loaded.
        """
        if why:
            return dict.fromkeys(_BY_CGROUP, why)
        if limits.has_dmem(self._cgroups):
            return {Ability.DMEM: "", Ability.MISC: "the kernel's dmem controller is used"}
        return {
            Ability.DMEM: "no dmem controller (Linux 6.14), or the driver does not use it",
            Ability.MISC: "",
        }

    def _divided(self, gpu: Gpu) -> dict[Ability, str]:
        """Return the MIG ability of a card; if its MIG mode is on, also that no other ability can be used."""
        if gpu.sharing is None or not gpu.sharing.mig:
            return {Ability.MIG: "its MIG mode is off"}
        others = [ability for ability in Ability if ability is not Ability.MIG]
        why = self._hindered() or self._undivided(gpu.sharing)
        return {Ability.MIG: why, **dict.fromkeys(others, "its MIG mode is on")}

    def _undivided(self, sharing: Sharing) -> str:
        """Return why the instances of a card in MIG mode cannot be shares; "" if they can."""
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
        """Return why our CUDA libraries cannot be used now; "" if they can. An operator's switch takes effect
        at once.
        """
        return self._hindered() or shim_ability.lacks(self._env, inventory)

    def _with_all(self, inventory: Inventory, known: Known) -> Inventory:
        shim = self._shim(inventory)
        served = {"mps_clients": mps.most_clients(inventory.cuda_version), "mps_users": self._has_all_users()}
        gpus = tuple(self._with(gpu, known, shim, served) for gpu in inventory.gpus)
        return replace(inventory, gpus=gpus)

    def _has_all_users(self) -> bool:
        """Return whether several users may share an MPS server; log the answer when it changes, if the
        operator wants that.
        """
        why = mps.no_users(self._env) if mps.across_users(self._env) else "it is not wanted"
        if why != self._told and mps.across_users(self._env):
            logger.warning("tasks of several users %s one server of MPS%s", *_user_words(why))
        self._told = why
        return not why

    def _with(self, gpu: Gpu, known: Known, shim: str, served: Mapping[str, Any]) -> Gpu:
        """Return the card with its abilities, and with its shareable memory reduced by what is reserved.

        Args:
            served: Fields of `Sharing` that only cards with MPS get.
        """
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
        """Return the MiB of a card that shares cannot use; 0 in MIG mode, as instances have memory of their
        own.
        """
        if sharing.mig:
            return 0
        if self._settings.reserve_mib is not None:
            return self._settings.reserve_mib
        return MPS_RESERVE_MIB if _is_served(why) else 0


def words_of(sharing: Sharing | None) -> str:
    """Return one line of text for operators: the ways in which a card can be shared, and why others are
    missing.
    """
    if sharing is None:
        return "its memory cannot be shared out"
    able = [ability.value for ability, why in sharing.abilities if not why]
    lacking = [f"{ability.value} ({why})" for ability, why in sharing.abilities if why]
    text = (
        f"{CAN} {', '.join(able)}: {sharing.memory_mib} MiB of each card"
        if able
        else "shares cannot be enforced"
    )
    text += "; users may share a server of MPS" if sharing.mps_users else ""
    return text + (f"; not {', '.join(lacking)}" if lacking else "")


def _words(error: Exception) -> str:
    return error.what if isinstance(error, MesosGpuError) else str(error)


def _user_words(why: str) -> tuple[str, str]:
    return ("cannot have", f": {why}") if why else ("may have", ", as the operator permits")


def _is_served(why: Mapping[Ability, str]) -> bool:
    """Return whether a card may have an MPS server."""
    return any(why.get(ability) == "" for ability in (Ability.MPS3, Ability.MPS2))


def _too_old(gpu: Gpu) -> dict[Ability, str]:
    """Return why MPS cannot limit clients on this card, by ability; empty if it can, or its capability is
    unknown.
    """
    why = mps.too_old(gpu.compute_capability)
    return dict.fromkeys((Ability.MPS3, Ability.MPS2), why) if why else {}
