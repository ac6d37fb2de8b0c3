"""GPUs simulated by files, with a libcuda and an NVML that use these files.

Tests run CUDA programs on them, to try our libraries that wrap the driver's, without a GPU or files of NVIDIA.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
MIB: Final = 1 << 20
CARD_MIB: Final = 16384
_HEAD: Final = struct.Struct("<QQQQ16s")  # total, used, busy_ns, launches, uuid
_PROCESS: Final = struct.Struct("<iiQQ")  # pid, -, used, busy_ns
_PROCESSES: Final = 64
_DRIVER: Final = (
    ("libcuda.so.1", ("stub_cuda.c", "stub_work.c")),
    ("libnvidia-ml.so.1", ("stub_nvml.c", "stub_use.c")),
)


def compile_stubs(target: Path, command: Sequence[str]) -> None:
    """Compile the two libraries and the program `client` into a directory.

    Raises:
        CalledProcessError: The compiler fails.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name, sources in _DRIVER:
        argv = [*command, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic"]
        files = [str(HERE / source) for source in sources]
        _run([*argv, f"-Wl,-soname,{name}", "-o", str(target / name), *files, "-lpthread", "-ldl"])
    libcuda = str(target / "libcuda.so.1")
    _run([*command, "-O2", "-o", str(target / "client"), str(HERE / "client.c"), libcuda])


def _run(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True, timeout=120, capture_output=True)


def _hex(number: int) -> str:
    return f"{number + 1:032x}"[::-1]


class Cards:
    """Simulated cards of a host: one file for each card in a directory."""

    def __init__(self, path: Path, count: int = 1, memory_mib: int = CARD_MIB) -> None:
        """Create empty cards, also in place of existing ones."""
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            head = _HEAD.pack(memory_mib * MIB, 0, 0, 0, bytes.fromhex(_hex(number)))
            content = head.ljust(_HEAD.size + _PROCESSES * _PROCESS.size, b"\0")
            (path / f"card{number}").write_bytes(content)

    def uuid(self, number: int = 0) -> str:
        """Return the UUID of a card as NVML reports it."""
        text = _hex(number)
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def used_mib(self, number: int = 0) -> float:
        """Return the memory of a card that processes have allocated, in MiB."""
        return float(_HEAD.unpack_from(self._content(number))[1]) / MIB

    def busy_ns(self, number: int = 0) -> dict[int, int]:
        """Return the nanoseconds that each process has used a card, by pid."""
        return {pid: busy_ns for pid, _, busy_ns in self._processes(number)}

    def held_bytes(self, number: int = 0) -> dict[int, int]:
        """Return the bytes of a card that each process has allocated, by pid."""
        return {pid: used for pid, used, _ in self._processes(number)}

    def _processes(self, number: int) -> list[tuple[int, int, int]]:
        processes = _PROCESS.iter_unpack(self._content(number)[_HEAD.size :])
        return [(pid, used, busy_ns) for pid, _, used, busy_ns in processes if pid]

    def _content(self, number: int) -> bytes:
        return (self.path / f"card{number}").read_bytes()


class Host:
    """Libraries as in a task's environment: our wrappers around the stubs, or the stubs alone."""

    def __init__(self, path: Path, stubs: Path, cards: Cards, ours: Mapping[str, str] | None = None) -> None:
        """Create the directory `lib64` with the libraries; `region` is not created.

        Args:
            path: Directory of the host.
            stubs: Directory that `compile_stubs` has filled.
            cards: Cards that programs see.
            ours: Files of our wrappers by library name, such as "libcuda.so.1"; None for the stubs alone.
        """
        self.path, self.cards, self._stubs = path, cards, stubs
        self.lib64, self.region = path / "lib64", path / "region"
        self.lib64.mkdir(parents=True)
        for (name, _), real in zip(_DRIVER, ("libmgpu-real-cuda.so", "libmgpu-real-ml.so"), strict=True):
            if ours is not None:
                shutil.copy(ours[name], self.lib64 / name)
            shutil.copy(stubs / name, self.lib64 / (name if ours is None else real))

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment of a program on this host."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.lib64), "STUB_CARDS": str(self.cards.path), **more}

    def client(self, *args: object, **more: str) -> "subprocess.Popen[str]":
        """Start the C program with these arguments."""
        argv = [str(self._stubs / "client"), *map(str, args)]
        return subprocess.Popen(
            argv, env=self.env(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
