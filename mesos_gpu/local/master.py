"""A Mesos master process, wired by Mesos' own `local::launch` (what mesos-local runs) with no agents.

The flags are those of mesos-master; LIBPROCESS_IP and LIBPROCESS_PORT in the environment say where it
listens. The contender and detector are standalone, that is, without ZooKeeper.
"""

import os
import signal

from mesos_gpu.local.cxx import CallFailed, Mesos, P, fail, virtual_base, zeros


def main(path: str, flags: list[str]) -> int:
    """Run until killed; the exit code if it does not start. `flags`: --name=value each."""
    try:
        lib = Mesos(path)
        _check_flags(lib, flags)
        _launch(lib, flags)
    except CallFailed as error:
        return fail(error)
    while True:
        signal.pause()


def _check_flags(lib: Mesos, flags: list[str]) -> None:
    """`local::launch` reads master::Flags from the environment, where Mesos ignores unknown names: load them
    here as mesos-master does, which refuses these."""
    checked = lib.new("_ZN5mesos8internal6master5FlagsC1Ev")
    lib.load_flags(virtual_base(checked, 1), "MESOS_", ["mesos-master", *flags])


def _launch(lib: Mesos, flags: list[str]) -> None:
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        os.environ[f"MESOS_{name.upper()}"] = value
    os.environ["MESOS_NUM_SLAVES"] = "0"
    lib.start_libprocess("master", "mesos-master-readwrite", "mesos-master-readonly")
    # local::Flags : virtual logging::Flags : virtual flags::FlagsBase
    local = lib.new("_ZN5mesos8internal5local5FlagsC1Ev")
    lib.load_flags(virtual_base(local, 1), "MESOS_", ["mesos-local"], unknowns=True)
    # PID<Master> local::launch(const Flags&, allocator::Allocator*)
    lib["_ZN5mesos8internal5local6launchERKNS1_5FlagsEPNS_9allocator9AllocatorE"](
        P(zeros(512)), P(local), P(0)
    )
