"""Common parts of all ways to run an image: requirements on the host, environment, mounts, user."""

import os
import pwd
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isolator.host.not_started import NotStarted
from isolator.host.sandbox import Sandbox
from isolator.host.user_pool import has_account
from isolator.runs.environment import image_environment, told_in
from isolator.runs.gang import HOSTFILE_IN_IMAGE, hostfile_in
from isolator.runs.run import Ended, Launch, give, given_env, given_mounts, identity
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.policy.gpus.image import needed_driver, unmet, wants_volume
from mesos_gpu.policy.gpus.volume_paths import OPTIX_DATA, OPTIX_PATH, VOLUME_PATH, container_environment
from volumes.keys import data_of, default_path
from volumes.store import Store

if TYPE_CHECKING:
    from isolator.images.login import Login

SANDBOX: Final = "/mnt/mesos/sandbox"  # path of the sandbox in an image (--sandbox_directory of Mesos)
RUNS: Final = "runs"  # directory of an executor's runs (slave/paths.hpp)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Container of an image, whatever the engine.

    Attributes:
        binds: Bind mounts (path on the host, path inside, read-only).
        given: Device and inode of each mount that the job requests.
        share: Bind mounts for the task's share.
        strict: Whether the image must not contain a libcuda.
    """

    env: Mapping[str, str]
    user: pwd.struct_passwd
    binds: tuple[tuple[str, str, bool], ...] = ()
    given: tuple[tuple[int, int], ...] = ()
    share: tuple[tuple[str, str, bool], ...] = ()
    strict: bool = False

    def see(self, pid: int) -> None:
        """Check, from a process of the container before its command, that the container has its mounts and no
        libcuda.

        Raises:
            NotStarted, OSError: It does not, or cannot be checked.
        """
        if self.given:
            from isolator.runs.host_paths import see_given

            see_given(pid, self.given)
        if self.strict:
            from isolator.shares.own_cuda import libcuda_of, search_path

            if own := libcuda_of(f"/proc/{pid}/root", search_path(pid)):
                raise brings_libcuda(own)


def prepare(
    launch: Launch,
    config: ImageConfig,
    inventory: Inventory,
    *,
    by_agent: bool = False,
    user: pwd.struct_passwd | None = None,
) -> Prepared:
    """Check that this host can run the image, and return what its container gets.

    Args:
        launch: Launch of the task.
        config: Configuration of the image.
        inventory: Cards and driver of this host.
        by_agent: Whether the agent makes the mounts.
        user: User of a container that the executor starts without a gate; None for the job's user and a gate.

    Raises:
        NotStarted: The image needs a newer driver, or a driver volume that does not exist; a path of the host
            may not be mounted; or the job's user cannot be used.
    """
    plan = launch.plan
    share = given_mounts(launch)
    if user is None:
        _check_gate(launch, strict=plan.strict and bool(share))
        user = user_of(launch)
    if by_agent and not has_account(user):
        raise NotStarted(
            f"Mesos runs images only as users with an account: create the account {user.pw_name} on this host, uid "
            f"{user.pw_uid}, name a user, or use --container-engine own or docker"
        )
    needs = ImageConfig(config.labels, {**config.env, **plan.env}, config.entrypoint, config.cmd, config.user)
    if why := unmet(needs, inventory.driver_version, inventory.cuda_version):
        need = needed_driver(needs, inventory.driver_version, inventory.cuda_version)
        outcome = Outcome(min_driver=need.least, needs=need.what) if need else None
        raise NotStarted(f"{plan.image} cannot run here: {why}", outcome)
    # an image that the agent runs has a sandbox of its own, below
    give(launch.sandbox, user, writes=not by_agent)
    if user.pw_uid == 0:
        _close_to_others(launch.sandbox)
    binds, given = _mounts(launch, user, by_agent)
    paths: Mapping[str, str] = {}
    if wants_volume(config) or share:
        build = volume(launch, inventory)
        data = data_of(build)
        binds = (*binds, (str(build), VOLUME_PATH, True))
        if OPTIX_DATA in data:
            binds = (*binds, (str(build / OPTIX_DATA), OPTIX_PATH, True))
        first = plan.share is not None
        paths = container_environment(
            needs, inventory.driver_version, inventory.cuda_version, first=first, data=data
        )
    if plan.hosts:
        binds = (*binds, (hostfile_in(launch.sandbox), HOSTFILE_IN_IMAGE, True))
        paths = {**paths, "HOSTFILE": HOSTFILE_IN_IMAGE}
    env = image_environment(launch.own, launch.task, plan)
    env = {**env, **paths, **given_env(launch), "MESOS_SANDBOX": SANDBOX, **told_in(SANDBOX)}
    return Prepared(env, user, binds, given, share, plan.strict and bool(share))


def user_of(launch: Launch) -> pwd.struct_passwd:
    """Return the user of an image by the job and the host.

    Raises:
        NotStarted: The user cannot be used (`identity`), or has no account.
    """
    user = identity(launch.plan, launch.own)
    if user is None:
        raise NotStarted("an image needs a user with an account on this host; name one")
    return user


def login_for(launch: Launch, host: str, repository: str) -> "Login | None":
    """Return the login with which a registry is asked for the task's image; None to ask without one.

    Args:
        launch: Launch of the task.
        host: HOST[:PORT] of the registry; empty for that of names without a host.
        repository: Path in the registry.

    Raises:
        NotStarted: The secret that the job names has no login for that registry.
    """
    logins = launch.secrets.logins if launch.secrets is not None else None
    if logins is None:
        return None
    login = logins.find(host, repository)
    if login is None and not launch.plan.image_secret_is_default:
        from isolator.images.reference import registry_host

        raise NotStarted(
            f"the image secret {launch.plan.image_secret} has no login for {registry_host(host)}, the registry of "
            f"{launch.plan.image}, but for {', '.join(logins.hosts)}; name another secret or image"
        )
    return login


def _check_gate(launch: Launch, *, strict: bool) -> None:
    """Check that the container has a gate if the image must be checked, or limits set, before its command
    (`Prepared.see`).
    """
    if launch.enclosure.fence is not None:
        return
    if launch.given is not None and launch.given.at_gate:
        raise NotStarted(
            "the limits of a share are set at the container's gate, which needs an agent without "
            "MESOS_GPU_CONTROL_PORTS=off",
            Outcome(infrastructure=True, refused_gpus=launch.plan.gpus),
        )
    if launch.plan.secrets:
        raise NotStarted(
            "a container gets secrets at its gate, but has none if control ports are not denied; secrets in images "
            "need an agent without MESOS_GPU_CONTROL_PORTS=off"
        )
    if strict:
        raise NotStarted(
            "whether the image has a libcuda of its own is checked at its gate, but a container has none if control "
            "ports are not denied; isolation strict needs an agent without MESOS_GPU_CONTROL_PORTS=off"
        )


def _mounts(
    launch: Launch, user: pwd.struct_passwd, by_agent: bool
) -> tuple[tuple[tuple[str, str, bool], ...], tuple[tuple[int, int], ...]]:
    """Return the bind mounts for `Prepared.binds`, and device and inode of each for `Prepared.given`."""
    if not launch.plan.mounts:
        return (), ()
    from isolator.runs.host_paths import granted, in_image, in_nested
    from mesos_gpu.model.jobs.mount import persistent_of

    place = in_nested if by_agent else in_image
    volume_targets = {mount.target for mount in persistent_of(launch.plan.mounts)}
    paths = [
        mount.source
        for mount in launch.plan.mounts
        if not mount.volume_mib and mount.source not in volume_targets
    ]
    if by_agent and (own := [path for path in paths if not path.startswith("/")]):
        raise NotStarted(
            f"{own[0]} cannot be mounted: Mesos makes an image's sandbox only when it starts the image"
        )
    mounts = granted(launch.plan.mounts, launch.own, user)
    return place(mounts, SANDBOX), tuple(mount.identity for mount in mounts)


def _close_to_others(sandbox: str) -> None:
    """Close an executor's runs to other users if the image runs as root.

    Root of an image owns its sandbox, which is on the host: no other user may execute set-user-ID programs that it
    leaves there. The agent's directory above holds the runs of this executor only.
    """
    above = os.path.dirname(os.path.realpath(sandbox))
    if os.path.basename(above) == RUNS:
        with Sandbox(above) as runs:
            runs.shut()


def volume(launch: Launch, inventory: Inventory) -> Path:
    """Return the driver volume that is leased for the task.

    Raises:
        NotStarted: There is no driver volume. (Not the infrastructure's fault: placement would choose the
            same host again.)
    """
    if launch.volume is None:
        path = Store(default_path(launch.own)).path_of(inventory.driver_version or "<no driver>")
        raise NotStarted(f"the image needs the driver's libraries, but this host has no driver volume {path}")
    return launch.volume


def hand_secrets(launch: Launch, prepared: Prepared, pid: int) -> None:
    """Give a container its secrets other than variables, from the process at its gate.

    Raises:
        MesosGpuError, OSError: That failed; the container is to be killed.
    """
    if launch.secrets is None:
        return
    from isolator.secrets.handing import hand

    hand(launch.secrets, pid, launch.enclosure.gate, (prepared.user.pw_uid, prepared.user.pw_gid), SANDBOX)


def brings_libcuda(path: str) -> NotStarted:
    """Return the error for an image with a libcuda at a path."""
    return NotStarted(
        f"the image has a libcuda of its own, {path}, by which it could exceed its share; isolation strict needs an "
        "image without one"
    )


def command_of(plan: Assignment, config: ImageConfig) -> None:
    """Check that the job or the image names a command.

    Raises:
        NotStarted: Neither does.
    """
    if plan.command is None and not plan.argv and not plan.args and not config.entrypoint and not config.cmd:
        raise NotStarted(f"neither the job nor the image {plan.image} has a command")


def argv_of(plan: Assignment, config: ImageConfig) -> tuple[str, ...]:
    """Return the command in an image: the job's command, or the image's entrypoint with the job's or the
    image's arguments.
    """
    if plan.command is not None:
        return ("/bin/sh", "-c", plan.command)
    if plan.argv:
        return plan.argv
    return (*config.entrypoint, *(plan.args or config.cmd))


def in_sandbox(argv: tuple[str, ...], plan: Assignment, config: ImageConfig) -> tuple[str, ...]:
    """Return the command, wrapped so that it starts in the directory with the job's uploaded files.

    Mesos starts commands in the sandbox unless the image names another directory, which cannot be overridden:
    then the image's shell changes the directory.
    """
    if plan.upload is None or config.directory in ("", SANDBOX):
        return argv
    return ("/bin/sh", "-c", 'cd "$MESOS_SANDBOX" && exec "$@"', "sh", *argv)


def refused_without_isolation(isolated: bool) -> None:
    """Refuse an image without isolation, as it would have every card.

    Raises:
        NotStarted: Isolation is off.
    """
    if not isolated:
        raise NotStarted("images need isolation, which is off on this host (MESOS_GPU_ISOLATION)")


def ended_of(status: int, why: str = "") -> Ended:
    """Return the end that a wait status describes (wait(2))."""
    code = os.waitstatus_to_exitcode(status)
    return Ended(exit_status=code, why=why) if code >= 0 else Ended(signal=-code, why=why)


TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)
