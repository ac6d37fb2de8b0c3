"""The helper `mesos-containerizer`, which the agent runs for each container: `launch`, `network-cni-setup`, `mount`.

`launch` runs in the container's namespaces and cgroups, enters its root file system and execs its command;
`network-cni-setup` prepares /etc/hosts and the like of a container with an image. Both call Mesos' own code
(classes MesosContainerizerLaunch, NetworkCniIsolatorSetup). The object file of `mount` is not in the distribution;
its only operation is a single system call, which is made here.
"""

import ctypes
import os
import sys

from mesos_gpu.libmesos.cgroup2 import enter
from mesos_gpu.libmesos.cxx import CallFailed, Mesos, P, fail, string_at, virtual_base, zeros

_SLAVE = "_ZN5mesos8internal5slave"
CLASSES = {
    "launch": _SLAVE + "24MesosContainerizerLaunch",
    "network-cni-setup": _SLAVE + "23NetworkCniIsolatorSetup",
}
LAUNCH_INFO = "MESOS_CONTAINERIZER_LAUNCH_INFO"  # the agent gives the flags of `launch` in the environment
MS_REC, MS_SLAVE = 0x4000, 0x80000  # linux/mount.h


def main(path: str, argv: list[str], cgroup2: str = "") -> int:
    """Run a subcommand of mesos-containerizer, and return its exit status.

    Args:
        path: Path of the library of Mesos.
        argv: Arguments as the agent gives them: program name, subcommand, flags.
        cgroup2: Prefix of the agents' cgroups v2, if each container gets its own cgroup there; "" if not.
    """
    name, args = (argv[1:2] or ["help"])[0], argv[:1] + argv[2:]
    if name == "mount":
        return _mount(args[1:])
    if name not in CLASSES:
        print(f"mesos-containerizer: no subcommand {name!r}", file=sys.stderr)
        return 1
    try:
        if name == "launch":
            _drop_binds_of_absent_files()
            if cgroup2:
                enter(cgroup2, argv[0])
        lib = Mesos(path)
        this, base = _subcommand(lib, name)
        lib.load_flags(base, "MESOS_CONTAINERIZER_", args)
    except CallFailed as error:
        return fail(error)
    except OSError as error:
        return fail(CallFailed(f"no cgroup v2 for the container: {error}"))
    execute = lib[CLASSES[name] + "7executeEv"]
    execute.restype = ctypes.c_int
    return int(execute(P(this)))


def _subcommand(lib: Mesos, name: str) -> tuple[int, int]:
    """Construct a subclass of stout's Subcommand, whose constructor is inline. Return its address and its FlagsBase's.

    class Subcommand { vptr @0; std::string name_ @8; flags::FlagsBase flags_ @40; };
    class MesosContainerizerLaunch : public Subcommand { Flags flags; };     // : virtual FlagsBase
    """
    size_of_flags_base = 0xE0 - 40
    mangled = CLASSES[name]
    this = zeros(1 << 14)
    # an object's vptr points behind the vtable's header {offset to top, typeinfo}
    vtable = ctypes.c_char.in_dll(lib, f"_ZTV{mangled[2:]}E")
    ctypes.c_void_p.from_address(this).value = ctypes.addressof(vtable) + 16
    string_at(this + 8, name)
    lib["_ZN5flags9FlagsBaseC1Ev"](P(this + 40))
    flags = this + 40 + size_of_flags_base
    lib[mangled + "5FlagsC1Ev"](P(flags))
    # getFlags() {return &flags;} converts to the virtual base: it must agree with the layout assumed above
    base = lib[mangled + "8getFlagsEv"](P(this))
    if base != virtual_base(flags):
        raise CallFailed(f"unexpected layout of {mangled}")
    return this, int(base)


def _drop_binds_of_absent_files() -> None:
    """Remove bind mounts of files that the host's /proc lacks from the launch info.

    Mesos 1.11 binds /proc/sysrq-trigger of every image onto itself, to make it read-only, and fails on a kernel without
    CONFIG_MAGIC_SYSRQ, where the file is absent. An absent file needs no protection.
    """
    text = os.environ.get(LAUNCH_INFO, "")
    if '"rootfs"' not in text:
        return
    import json

    info = json.loads(text)
    rootfs = info.get("rootfs")
    if rootfs is not None:  # the text may also contain "rootfs" as the name of a variable
        mounts = [mount for mount in info.get("mounts", []) if not _is_of_absent_file(mount, rootfs)]
        os.environ[LAUNCH_INFO] = json.dumps({**info, "mounts": mounts})


def _is_of_absent_file(mount: dict[str, object], rootfs: str) -> bool:
    """Return whether a mount binds a file of the image's /proc onto itself that the host's /proc lacks."""
    source = str(mount.get("source"))
    head, tail = source[: len(rootfs)], source[len(rootfs) :]
    return (
        source == mount.get("target")
        and head == rootfs
        and tail.startswith("/proc/")
        and not os.path.exists(tail)
    )


def _mount(args: list[str]) -> int:
    flags = dict(a.lstrip("-").split("=", 1) for a in args)
    if flags.get("operation") != "make-rslave":
        print(f"Unsupported mount operation {flags.get('operation')!r}", file=sys.stderr)
        return 1
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, os.fsencode(flags["path"]), None, MS_SLAVE | MS_REC, None):
        why = os.strerror(ctypes.get_errno())
        print(f"Failed to mark rslave with path {flags['path']!r}: {why}", file=sys.stderr)
        return 1
    return 0
