"""Kernel settings of a host that keep processes of one user, and tasks and root, apart, besides our own
isolation. Pure.

Sources: the kernel's Documentation/admin-guide/LSM/Yama.rst, Documentation/admin-guide/sysctl/{fs,user}.rst,
Documentation/userspace-api/mfd_noexec.rst, mm/memfd.c, Debian's and Ubuntu's kernel.unprivileged_userns_clone
and kernel.apparmor_restrict_unprivileged_userns.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

#: Sysctl, smallest safe value, and what a task may do with a lower one.
_PROTECTED: Final = (
    ("protected_symlinks", 1, "have root follow a link in /tmp"),
    ("protected_hardlinks", 1, "link to files that it may not read"),
    ("protected_fifos", 1, "put a FIFO where another's file in /tmp is written"),
    ("protected_regular", 1, "put a file of its own where another's in /tmp is written"),
)
#: Isolators of an agent, and what an image does without each.
_OF_IMAGES: Final = {
    "namespaces/ipc": "shares System V's shared memory and POSIX queues with other tasks of its user",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a check of a kernel setting.

    Attributes:
        remedy: Advice; empty if the setting is right.
    """

    text: str
    remedy: str = ""


def tracing(read: Callable[[str], str], *, landlock: bool) -> Iterator[Answer]:
    """Yield the answer on whether a process may attach to others of its user that it did not start.

    Args:
        read: Function that returns a file's text by its path below the root; empty if the file does not
            exist.
        landlock: Whether each task gets a Landlock domain.
    """
    scope = read("proc/sys/kernel/yama/ptrace_scope").strip()
    if scope.isdigit() and int(scope) >= 1:
        yield Answer(
            f"kernel.yama.ptrace_scope is {scope}: processes of one user do not attach to each other"
        )
        return
    what = "is 0" if scope else "does not exist"
    who = (
        "Landlock keeps tasks from it" if landlock else "only the filter of system calls keeps tasks from it"
    )
    yield Answer(
        f"kernel.yama.ptrace_scope {what}: a process may attach to others of its user; {who}",
        "sysctl kernel.yama.ptrace_scope=1"
        + ("" if scope else " on a kernel with CONFIG_SECURITY_YAMA")
        + "; or give each job a user of its own (MESOS_GPU_USER_POOL)",
    )


def signals(*, scoped: bool) -> Iterator[Answer]:
    """Yield the answer on whether tasks of one user can send signals to each other.

    Args:
        scoped: Whether the Landlock domains of tasks block signals to other domains.
    """
    if scoped:
        yield Answer("Landlock keeps signals of a task, its commands and its checks in the task")
        return
    yield Answer(
        "Landlock does not keep signals in a task: jobs may end processes of other jobs of their user",
        "run Linux 6.12 or newer with Landlock, without MESOS_GPU_TASK_FILTER=off; or give each job a user of its own "
        "(MESOS_GPU_USER_POOL)",
    )


def commands(read: Callable[[str], str]) -> Iterator[Answer]:
    """Yield the answer on whether commands can be started in tasks without an image.

    They are started by a process that is executed from memory, which the value 1 of the sysctl allows and 2
    forbids.

    Args:
        read: Function that returns a file's text by its path below the root; empty if the file does not
            exist.
    """
    noexec = read("proc/sys/vm/memfd_noexec").strip()
    if noexec.isdigit() and int(noexec) >= 2:
        yield Answer(
            f"vm.memfd_noexec is {noexec}: tasks without an image have no commands (`mesos-gpu exec`, COMMAND checks)",
            "sysctl vm.memfd_noexec=1, and in /etc/sysctl.d; before Linux 6.6 it can be lowered only by a reboot",
        )
    else:
        yield Answer("the kernel lets commands be started in tasks without an image")


def links(read: Callable[[str], str]) -> Iterator[Answer]:
    """Yield the answer on whether tasks can lay traps for others by names in /tmp and other shared
    directories.

    Args:
        read: Function that returns a file's text by its path below the root; empty if the file does not
            exist.
    """
    missing = [
        (name, does)
        for name, least, does in _PROTECTED
        if int(read(f"proc/sys/fs/{name}").strip() or 0) < least
    ]
    if missing:
        yield Answer(
            "; ".join(f"fs.{name} is 0: a task may {does}" for name, does in missing),
            "sysctl "
            + " ".join(f"fs.{name}={2 if name.endswith(('fifos', 'regular')) else 1}" for name, _ in missing)
            + ", and in /etc/sysctl.d",
        )
    else:
        yield Answer("fs.protected_symlinks, _hardlinks, _fifos and _regular are set")


def user_namespaces(read: Callable[[str], str]) -> Iterator[Answer]:
    """Yield the answer on whether any user may make a user namespace, in which it is root over parts of the
    kernel.
    """
    reasons = [
        name
        for name, path, off in (
            ("user.max_user_namespaces=0", "proc/sys/user/max_user_namespaces", "0"),
            ("kernel.unprivileged_userns_clone=0", "proc/sys/kernel/unprivileged_userns_clone", "0"),
            ("kernel.apparmor_restrict_unprivileged_userns=1",
             "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
        )
        if read(path).strip() == off
    ]  # fmt: skip
    if reasons:
        yield Answer(f"users cannot make user namespaces: {reasons[0]}")
    elif not read("proc/sys/user/max_user_namespaces"):
        yield Answer("this kernel has no user namespaces")
    else:
        yield Answer(
            "every user may make user namespaces: no escape from isolation, but access to more code of the kernel",
            "sysctl user.max_user_namespaces=0, unless jobs make containers of their own (Apptainer, rootless Podman)",
        )


def images(isolators: Collection[str], providers: Collection[str]) -> Iterator[Answer]:
    """Yield the answers on what an agent lacks to run images, and to isolate them like tasks without one.

    Args:
        isolators: Isolators of its --isolation.
        providers: Providers of its --image_providers.
    """
    lacking = sorted({"filesystem/linux", "docker/runtime"} - {*isolators})
    if "docker" not in providers:
        lacking.append("--image_providers=docker")
    if lacking and "cgroups/devices" not in isolators:
        yield Answer("the executors run images themselves")
        return
    if lacking:
        yield Answer(
            f"without {', '.join(lacking)}: jobs with an image run only with --container-engine own or docker",
            "see the guide for the agent's flags",
        )
        return
    for name, what in _OF_IMAGES.items():
        if name not in isolators:
            yield Answer(f"without {name} an image {what}", f"add {name} to --isolation")
