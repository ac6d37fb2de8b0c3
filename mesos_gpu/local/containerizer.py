"""The helper `mesos-containerizer`, which the agent runs for each container: `launch` and `mount`.

`launch` runs in the container's namespaces and cgroups and execs its command: Mesos' own code (class
MesosContainerizerLaunch). The object file of `mount` is not in the distribution, but its one operation is a
single system call.
"""

import ctypes
import os
import sys

from mesos_gpu.local.cxx import CallFailed, Mesos, P, fail, string_at, virtual_base, zeros

LAUNCH = "_ZN5mesos8internal5slave24MesosContainerizerLaunch"
MS_REC, MS_SLAVE = 0x4000, 0x80000  # linux/mount.h


def main(path: str, argv: list[str]) -> int:
    """`argv` as the agent gives it: the program's name, the subcommand, its flags."""
    name, args = (argv[1:2] or ["help"])[0], argv[:1] + argv[2:]
    if name == "mount":
        return _mount(args[1:])
    if name != "launch":
        print(f"mesos-containerizer: no subcommand {name!r}", file=sys.stderr)
        return 1
    try:
        lib = Mesos(path)
        this, base = _launch_object(lib)
        lib.load_flags(base, "MESOS_CONTAINERIZER_", args)
    except CallFailed as error:
        return fail(error)
    execute = lib[LAUNCH + "7executeEv"]
    execute.restype = ctypes.c_int
    return int(execute(P(this)))


def _launch_object(lib: Mesos) -> tuple[int, int]:
    """Construct a MesosContainerizerLaunch, whose constructor is inline; its address, its FlagsBase's.

    class Subcommand { vptr @0; std::string name_ @8; flags::FlagsBase flags_ @40; };
    class MesosContainerizerLaunch : public Subcommand { Flags flags; };     // : virtual FlagsBase
    """
    size_of_flags_base = 0xE0 - 40
    this = zeros(1 << 14)
    # an object's vptr points behind {offset to top, typeinfo}
    vtable = ctypes.c_char.in_dll(lib, f"_ZTV{LAUNCH[2:]}E")
    ctypes.c_void_p.from_address(this).value = ctypes.addressof(vtable) + 16
    string_at(this + 8, "launch")
    lib["_ZN5flags9FlagsBaseC1Ev"](P(this + 40))
    flags = this + 40 + size_of_flags_base
    lib[LAUNCH + "5FlagsC1Ev"](P(flags))
    # getFlags() {return &flags;} converts to the virtual base: it must agree with what was assumed
    base = lib[LAUNCH + "8getFlagsEv"](P(this))
    if base != virtual_base(flags):
        raise CallFailed("unexpected layout of MesosContainerizerLaunch")
    return this, int(base)


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
