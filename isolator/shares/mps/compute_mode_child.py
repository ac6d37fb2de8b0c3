"""Set the compute mode of one card: what `isolator.shares.mps.compute_mode` runs as a file, with little to import."""

import ctypes  # the bindings import it anyway
import os
import sys

PR_SET_PDEATHSIG, SIGKILL = 1, 9  # linux/prctl.h; a module for that takes as long as all the rest
EXCLUSIVE_PROCESS = 3  # nvml.h, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def main(arguments: list[str]) -> int:
    """Change the mode of one card; what fails is said on stdout.

    Args:
        arguments: Directory of pynvml, UUID, "exclusive" or "undo", path of the note, pid of the parent.
    """
    bindings, gpu, what, note, parent = arguments
    if not _dies_with(int(parent)):
        return 1
    if what == "undo" and not os.path.exists(note):
        return 0
    sys.path.append(bindings)
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        before = pynvml.nvmlDeviceGetComputeMode(handle)
        wanted = _kept(note) if what == "undo" else EXCLUSIVE_PROCESS
        if what != "undo" and not os.path.exists(note):
            _keep(note, before)
        if before != wanted:
            pynvml.nvmlDeviceSetComputeMode(handle, wanted)
            now = pynvml.nvmlDeviceGetComputeMode(handle)
            if now != wanted:
                print(f"the compute mode of {gpu} is {now} after it was set to {wanted}")
                return 1
    except pynvml.NVMLError as error:
        print(f"the compute mode of {gpu} cannot be set: {error}")
        return 1
    if what == "undo":
        os.unlink(note)
    return 0


def _dies_with(parent: int) -> bool:
    """Whether the parent lives, and this process ends with it: nobody waits for a change that comes later."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def _kept(note: str) -> int:
    with open(note) as file:
        return int(file.read())


def _keep(note: str, mode: int) -> None:
    part = f"{note}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(str(mode))
    os.replace(part, note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
