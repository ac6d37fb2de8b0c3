"""Small ELF shared objects written without a compiler, and a root directory with the file layout of NVIDIA's driver.

The objects have the parts of a library without code: program headers, a dynamic segment, a hash table without symbols,
notes and needed versions, but no section headers. The real loader opens them, and the real ldconfig lists them.
"""

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Unavailable
from tests.doubles import ld_cache

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_GNU_STACK = 1, 2, 4, 0x6474E551
_READ, _WRITE = 4, 2
_DT: Final[Mapping[str, int]] = {
    "NULL": 0,
    "NEEDED": 1,
    "HASH": 4,
    "STRTAB": 5,
    "SYMTAB": 6,
    "STRSZ": 10,
    "SYMENT": 11,
    "SONAME": 14,
    "VERSYM": 0x6FFFFFF0,
    "VERNEED": 0x6FFFFFFE,
    "VERNEEDNUM": 0x6FFFFFFF,
}
#: By `uname -m`: bits, e_machine, e_flags (ELFv2 of Power; EABI 5 with hardware floating point of Arm), largest page.
_MACHINES: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "x86_64": (64, 62, 0, 0x1000),
    "i686": (32, 3, 0, 0x1000),
    "aarch64": (64, 183, 0, 0x10000),
    "armv7l": (32, 40, 0x05000400, 0x10000),
    "ppc64le": (64, 21, 2, 0x10000),
}


def shared_object(
    *,
    machine: str = "x86_64",
    soname: str | None = None,
    needed: Sequence[str] = (),
    abi: tuple[int, int, int] | None = None,
    glibc: tuple[int, ...] = (),
    content: bytes = b"",
) -> bytes:
    """Return the content of a little-endian shared object.

    Args:
        machine: "x86_64", "i686", "aarch64", "armv7l" or "ppc64le"; it says 32 or 64 bits too.
        soname: Name in DT_SONAME, or None for no entry.
        needed: Names of libraries in DT_NEEDED, in order.
        abi: Kernel version in a NT_GNU_ABI_TAG note.
        glibc: Version of libc.so.6 that is needed, such as (2, 17); adds libc.so.6 to `needed`.
        content: Bytes that make the file unique or large.
    """
    return _Writer(_MACHINES[machine]).write(soname, tuple(needed), abi, glibc, content)


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        """Add a string and return its offset."""
        offset = len(self.data)
        self.data += text.encode() + b"\0"
        return offset


class _Writer:
    """A writer of one object: the file is one segment mapped at address 0, so that offsets are addresses."""

    def __init__(self, machine: tuple[int, int, int, int]) -> None:
        self._bits, self._machine, self._flags, self._page = machine
        self._word = 8 if self._bits == 64 else 4
        self._file_header = 64 if self._bits == 64 else 52
        self._program_header = 56 if self._bits == 64 else 32
        self._symbol = 24 if self._bits == 64 else 16

    def write(
        self,
        soname: str | None,
        needed: tuple[str, ...],
        abi: tuple[int, int, int] | None,
        glibc: tuple[int, ...],
        content: bytes,
    ) -> bytes:
        if glibc and "libc.so.6" not in needed:
            needed += ("libc.so.6",)
        strings = _Strings()
        dynamic = [("NEEDED", strings.add(name)) for name in needed]
        if soname is not None:
            dynamic.append(("SONAME", strings.add(soname)))
        parts = {"note": _abi_note(abi) if abi else b"", "HASH": struct.pack("<4I", 1, 1, 0, 0)}
        parts["SYMTAB"] = bytes(self._symbol)
        if glibc:
            parts |= {"VERSYM": bytes(2), "VERNEED": _version_need(strings, glibc)}
        parts |= {"STRTAB": strings.data, "content": content}
        dynamic += [("STRSZ", len(strings.data)), ("SYMENT", self._symbol)]
        dynamic += [("VERNEEDNUM", 1)] if glibc else []
        return self._lay_out(dynamic, parts)

    def _lay_out(self, dynamic: list[tuple[str, int]], parts: Mapping[str, bytes]) -> bytes:
        count = 4 if parts["note"] else 3
        at = self._file_header + count * self._program_header
        where: dict[str, int] = {}
        body = b""
        for name, data in parts.items():
            body += bytes(-(at + len(body)) % 8)
            where[name] = at + len(body)
            body += data
        body += bytes(-(at + len(body)) % 8)
        dynamic += [(name, where[name]) for name in parts if name in _DT]
        table = b"".join(self._words(_DT[name], value) for name, value in (*dynamic, ("NULL", 0)))
        there = at + len(body)
        size = there + len(table)
        # Writable: the loader replaces the offsets in the dynamic segment by addresses.
        headers = self._segment(_PT_LOAD, _READ | _WRITE, 0, size, self._page)
        headers += self._segment(_PT_DYNAMIC, _READ | _WRITE, there, len(table), self._word)
        headers += self._segment(_PT_GNU_STACK, _READ | _WRITE, 0, 0, 16)
        if parts["note"]:
            headers += self._segment(_PT_NOTE, _READ, where["note"], len(parts["note"]), 4)
        return self._header(count) + headers + body + table

    def _words(self, *values: int) -> bytes:
        return struct.pack(f"<{len(values)}{'Q' if self._bits == 64 else 'I'}", *values)

    def _header(self, program_headers: int) -> bytes:
        ident = b"\x7fELF" + bytes((2 if self._bits == 64 else 1, 1, 1)) + bytes(9)
        shared = 3
        start = struct.pack("<HHI", shared, self._machine, 1) + self._words(0, self._file_header, 0)
        sizes = (self._file_header, self._program_header, program_headers, 0, 0, 0)
        return ident + start + struct.pack("<I6H", self._flags, *sizes)

    def _segment(self, kind: int, flags: int, offset: int, size: int, align: int) -> bytes:
        if self._bits == 64:
            return struct.pack("<2I6Q", kind, flags, offset, offset, offset, size, size, align)
        return struct.pack("<8I", kind, offset, offset, offset, size, size, flags, align)


def _abi_note(version: tuple[int, int, int]) -> bytes:
    """Encode a NT_GNU_ABI_TAG note: the oldest kernel of Linux (0) that the object supports."""
    return struct.pack("<3I4s4I", 4, 16, 1, b"GNU\0", 0, *version)


def _version_need(strings: _Strings, version: tuple[int, ...]) -> bytes:
    """Encode a version of a file that is needed (Elf_Verneed with one Elf_Vernaux)."""
    name = "GLIBC_" + ".".join(map(str, version))
    need = struct.pack("<2H3I", 1, 1, strings.add("libc.so.6"), 16, 0)
    return need + struct.pack("<I2H2I", _hash(name), 0, 2, strings.add(name), 0)


def _hash(name: str) -> int:
    """Return the System V hash of a symbol name."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


@dataclass(frozen=True, slots=True)
class _Library:
    """A library of the simulated driver; `{v}` in names stands for the driver's version."""

    file: str
    soname: str | None = None
    needed: str = "libc.so.6"
    links: str = ""
    abi: tuple[int, int, int] | None = None
    directory: str = ""


#: Most libraries of NVIDIA's installer 535; `needed` is theirs, but of the host's libraries only libc and X are named.
_DRIVER: Final = (
    _Library("libcuda.so.{v}", "libcuda.so.1", links="libcuda.so"),
    _Library("libcudadebugger.so.{v}", "libcudadebugger.so.1"),
    _Library("libnvidia-ml.so.{v}", "libnvidia-ml.so.1", links="libnvidia-ml.so"),
    _Library("libnvidia-cfg.so.{v}", "libnvidia-cfg.so.1", links="libnvidia-cfg.so"),
    _Library("libnvidia-ptxjitcompiler.so.{v}", "libnvidia-ptxjitcompiler.so.1"),
    _Library("libnvidia-nvvm.so.{v}", "libnvidia-nvvm.so.4", links="libnvidia-nvvm.so"),
    _Library("libnvidia-opencl.so.{v}", "libnvidia-opencl.so.1"),
    _Library("libnvidia-allocator.so.{v}", "libnvidia-allocator.so.1", links="libnvidia-allocator.so"),
    _Library("libnvidia-pkcs11.so.{v}", "libnvidia-pkcs11.so.{v}"),
    _Library("libnvidia-pkcs11-openssl3.so.{v}", "libnvidia-pkcs11-openssl3.so.{v}"),
    _Library("libnvcuvid.so.{v}", "libnvcuvid.so.1", links="libnvcuvid.so"),
    _Library(
        "libnvidia-encode.so.{v}", "libnvidia-encode.so.1", "libnvcuvid.so.1 libc.so.6", "libnvidia-encode.so"
    ),
    _Library(
        "libnvidia-opticalflow.so.{v}",
        "libnvidia-opticalflow.so.1",
        "libnvcuvid.so.1 libc.so.6",
        "libnvidia-opticalflow.so",
    ),
    _Library("libvdpau_nvidia.so.{v}", "libvdpau_nvidia.so.1", "libX11.so.6 libc.so.6", directory="vdpau"),
    _Library("libnvidia-tls.so.{v}", "libnvidia-tls.so.{v}", abi=(2, 2, 5)),
    _Library("libnvidia-tls.so.{v}", "libnvidia-tls.so.{v}", abi=(2, 3, 99), directory="tls"),
    _Library("libnvidia-glsi.so.{v}", "libnvidia-glsi.so.{v}"),
    _Library("libnvidia-glcore.so.{v}", "libnvidia-glcore.so.{v}", "libc.so.6 libnvidia-tls.so.{v}"),
    _Library("libnvidia-eglcore.so.{v}", "libnvidia-eglcore.so.{v}", "libc.so.6 libnvidia-glsi.so.{v}"),
    _Library("libnvidia-glvkspirv.so.{v}", "libnvidia-glvkspirv.so.{v}"),
    _Library(
        "libnvidia-fbc.so.{v}", "libnvidia-fbc.so.1", "libGL.so.1 libX11.so.6 libc.so.6", "libnvidia-fbc.so"
    ),
    _Library("libnvidia-rtcore.so.{v}", "libnvidia-rtcore.so.{v}"),
    _Library("libnvoptix.so.{v}", "libnvoptix.so.1"),
    _Library(
        "libGLX_nvidia.so.{v}",
        "libGLX_nvidia.so.0",
        "libnvidia-glsi.so.{v} libnvidia-tls.so.{v} libnvidia-glcore.so.{v} libX11.so.6 libc.so.6",
        "libGLX_indirect.so.0",
    ),
    _Library("libEGL_nvidia.so.{v}", "libEGL_nvidia.so.0", "libc.so.6 libnvidia-glsi.so.{v}"),
    _Library("libGLESv2_nvidia.so.{v}", "libGLESv2_nvidia.so.2"),
    _Library("libGLESv1_CM_nvidia.so.{v}", "libGLESv1_CM_nvidia.so.1"),
    _Library("libnvidia-egl-wayland.so.1.1.11", "libnvidia-egl-wayland.so.1"),
    _Library("libnvidia-egl-gbm.so.1.1.0", "libnvidia-egl-gbm.so.1"),
    _Library("libnvidia-ngx.so.{v}", "libnvidia-ngx.so.1"),
    _Library("libnvidia-gtk3.so.{v}"),
)
#: Libraries of a host beside its driver: entry points of GLVND (they need libGLdispatch.so.0), and others.
_BESIDE: Final = (
    _Library("libGLdispatch.so.0.0.0", "libGLdispatch.so.0"),
    _Library("libGLX.so.0.0.0", "libGLX.so.0", "libGLdispatch.so.0 libc.so.6"),
    _Library("libGL.so.1.7.0", "libGL.so.1", "libGLdispatch.so.0 libGLX.so.0 libc.so.6", "libGL.so"),
    _Library("libOpenGL.so.0.0.0", "libOpenGL.so.0", "libGLdispatch.so.0 libc.so.6"),
    _Library("libEGL.so.1.1.0", "libEGL.so.1", "libGLdispatch.so.0 libc.so.6"),
    _Library("libGLESv2.so.2.1.0", "libGLESv2.so.2", "libGLdispatch.so.0 libc.so.6"),
    _Library("libGLESv1_CM.so.1.2.0", "libGLESv1_CM.so.1", "libGLdispatch.so.0 libc.so.6"),
    _Library("libOpenCL.so.1.0.0", "libOpenCL.so.1"),
    _Library("libz.so.1.2.13", "libz.so.1"),
    _Library("libc.so.6", "libc.so.6", ""),
    # Mesa's, without GLVND, as distributions had it in a directory of its own.
    _Library("libEGL.so.1.0.0", "libEGL.so.1", "libglapi.so.0 libgbm.so.1 libc.so.6", directory="mesa-egl"),
)
#: Beginnings of names of libraries that have no 32-bit version.
_NOT_COMPANION: Final = (
    "libcudadebugger",
    "libnvidia-cfg",
    "libnvidia-pkcs11",
    "libnvidia-rtcore",
    "libnvoptix",
    "libnvidia-ngx",
    "libnvidia-gtk3",
    "libnvidia-egl-",
)
_PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-modprobe",
    "nvidia-settings",
)
#: Data of EGL, Vulkan and OptiX.
_DATA: Final[Mapping[str, bytes]] = {
    "glvnd/egl_vendor.d/10_nvidia.json": b'{"ICD": {"library_path": "libEGL_nvidia.so.0"}}\n',
    "vulkan/icd.d/nvidia_icd.json": b'{"ICD": {"library_path": "libGLX_nvidia.so.0"}}\n',
    "nvidia/nvoptix.bin": b"weights\n",
}
#: Directory of libraries, and the 32-bit machine that the driver supports too.
_TRIPLETS: Final[Mapping[str, tuple[str, str | None]]] = {
    "x86_64": ("x86_64-linux-gnu", "i686"),
    "i686": ("i386-linux-gnu", None),
    "aarch64": ("aarch64-linux-gnu", None),
    "ppc64le": ("powerpc64le-linux-gnu", None),
}


def driver_tree(
    root: Path,
    version: str = "535.129.03",
    *,
    machine: str = "x86_64",
    kernel: str | None = "",
    cache: bool = True,
    beside: bool = True,
) -> None:
    """Fill a directory with small files that have the names of those of NVIDIA's installer.

    A second call adds another driver.

    Args:
        root: Directory, which is created if needed.
        version: Version of the libraries and programs.
        machine: "x86_64" (with its 32-bit libraries), "aarch64" or "ppc64le".
        kernel: Version of the kernel module in /proc and /sys; empty for `version`, None if no module is loaded.
        cache: Whether to write /etc/ld.so.cache (by the real ldconfig if it supports the machine).
        beside: Whether to add libraries of GLVND and Mesa, and libc.

    Raises:
        Unavailable: There is no ldconfig.
    """
    triplet, companion = _TRIPLETS[machine]
    libraries = _DRIVER + _BESIDE if beside else _DRIVER
    written = _write_libraries(root, triplet, machine, version, libraries)
    if companion is not None:
        small = [library for library in libraries if not library.file.startswith(_NOT_COMPANION)]
        written += _write_libraries(root, _TRIPLETS[companion][0], companion, version, small)
    _write_programs(root, version, machine)
    for path, content in _DATA.items():
        _write(root / "usr/share" / path, content)
    if kernel is not None:
        _write_kernel_module(root, kernel or version, machine)
    if cache:
        directories = sorted({path.rpartition("/")[0] for _, path in written if "/tls/" not in path})
        _write(root / "etc/ld.so.conf", "".join(f"{directory}\n" for directory in directories).encode())
        _write_cache(root, machine, written)


def ldconfig(root: Path, *options: str) -> None:
    """Run the real ldconfig on a root directory: it writes etc/ld.so.cache and creates links by SONAME.

    Raises:
        Unavailable: ldconfig is missing or fails.
    """
    program = shutil.which("ldconfig", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise Unavailable("there is no ldconfig", remedy="install libc-bin")
    _write(root / "etc/ld.so.conf", b"", keep=True)
    done = subprocess.run([program, "-r", root, *options], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise Unavailable(f"ldconfig failed: {done.stderr.strip()}", remedy="run it by hand")


def _write_libraries(
    root: Path, triplet: str, machine: str, version: str, libraries: Sequence[_Library]
) -> list[tuple[str, str]]:
    """Write libraries and their links; return SONAME and path of each for the loader's cache."""
    listed = []
    for library in libraries:
        name, soname = library.file.format(v=version), library.soname and library.soname.format(v=version)
        directory = f"/usr/lib/{triplet}/{library.directory}".rstrip("/")
        needed = library.needed.format(v=version).split()
        data = shared_object(
            machine=machine,
            soname=soname,
            needed=needed,
            abi=library.abi,
            glibc=(2, 17) if "libc.so.6" in needed else (),
            content=f"{machine} {directory}/{name} of {version}\n".encode(),
        )
        _write(root / directory[1:] / name, data)
        for link in (soname, *library.links.split()):
            if link is not None and link != name:
                _link(root / directory[1:] / link, name)
        if soname is not None:
            listed.append((soname, f"{directory}/{soname}"))
    return listed


def _write_programs(root: Path, version: str, machine: str) -> None:
    for name in _PROGRAMS:
        content = f"{machine} {name} of {version}\n".encode()
        data = shared_object(machine=machine, needed=("libc.so.6",), content=content)
        _write(root / "usr/bin" / name, data, mode=0o755)
    _write(root / "usr/bin/nvidia-bug-report.sh", b"#!/bin/sh\n", mode=0o755)


def _write_kernel_module(root: Path, version: str, machine: str) -> None:
    text = (
        f"NVRM version: NVIDIA UNIX {machine} Kernel Module  {version}  Thu Oct 19 18:56:32 UTC 2023\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    _write(root / "proc/driver/nvidia/version", text.encode())
    _write(root / "sys/module/nvidia/version", f"{version}\n".encode())


def _write_cache(root: Path, machine: str, listed: Sequence[tuple[str, str]]) -> None:
    if machine == "x86_64":
        ldconfig(root)
        return
    flags = ld_cache.FLAGS[machine]
    entries = [ld_cache.CacheLine(name, path, flags) for name, path in listed]
    _write(root / "etc/ld.so.cache", ld_cache.new(entries))


def _write(path: Path, data: bytes, *, mode: int = 0o644, keep: bool = False) -> None:
    """Write a new file: an existing one is not changed in place, as a volume may have a hard link to it."""
    if keep and path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
