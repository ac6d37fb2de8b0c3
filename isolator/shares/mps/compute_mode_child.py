"""Program that sets the compute mode of one card, with few imports; `isolator.shares.mps.compute_mode` runs
it as a file.
"""

import ctypes  # the bindings import it anyway
import os
import sys

PR_SET_PDEATHSIG, SIGKILL = 1, 9  # constants, as importing `signal` takes as long as all the rest
EXCLUSIVE_PROCESS = 3  # nvml.h, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def main(arguments: list[str]) -> int:
    """Change the mode of one card; print an error to stdout.

    Args:
        arguments: Directory of pynvml, UUID of the card, "exclusive" or "undo", path of the note, pid of the
            parent.
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
        mode = _read_note(note) if what == "undo" else EXCLUSIVE_PROCESS
        if what != "undo" and not os.path.exists(note):
            _write_note(note, before)
        if before != mode:
            pynvml.nvmlDeviceSetComputeMode(handle, mode)
            now = pynvml.nvmlDeviceGetComputeMode(handle)
            if now != mode:
                print(f"the compute mode of {gpu} is {now} after it was set to {mode}")
                return 1
    except pynvml.NVMLError as error:
        print(f"the compute mode of {gpu} cannot be set: {error}")
        return 1
    if what == "undo":
        os.unlink(note)
    return 0


def _dies_with(parent: int) -> bool:
    """Make the kernel kill this process when its parent dies; return whether the parent still lives.

    A change after the parent's death would come unnoticed.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def _read_note(note: str) -> int:
    with open(note) as file:
        return int(file.read())


def _write_note(note: str, mode: int) -> None:
    part = f"{note}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(str(mode))
    os.replace(part, note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
