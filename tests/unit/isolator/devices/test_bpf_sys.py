"""Calls of bpf(2), byte by byte, and the use of its answers: a kernel of the test's own."""

import ctypes
import errno
import os
import struct
from collections.abc import Callable

import pytest

from isolator.devices import bpf_sys
from isolator.devices.bpf_sys import CONNECT4, DEVICE, Attached, BpfError, Kind


class Kernel:
    """Programs by id, those of a cgroup, and all calls: command, size, and the attributes as they were."""

    def __init__(self) -> None:
        self.programs: dict[int, tuple[bytes, bytes]] = {}  # name and tag
        self.attached: list[int] = []
        self.calls: list[tuple[int, int, bytes]] = []
        self.fails: Callable[[int, bytes], OSError | None] = lambda command, attr: None
        self.ids: dict[int, int] = {}  # by descriptor
        self.tag = b"newdigest"[:8]
        self.said = b""

    def opened(self, ident: int) -> int:
        fd = os.open("/dev/null", os.O_RDONLY)
        self.ids[fd] = ident
        return fd

    def __call__(self, command: int, attr: "ctypes.Array[ctypes.c_char]", size: int) -> int:
        self.calls.append((command, size, attr.raw))
        assert attr.raw[size:] == bytes(len(attr) - size)
        if command == bpf_sys.PROG_LOAD and self.said:
            level, length, address = struct.unpack_from("=IIQ", attr.raw, 24)
            if level:
                assert length == 65536
                ctypes.memmove(address, self.said, len(self.said))
        if (error := self.fails(command, attr.raw)) is not None:
            raise error
        words = struct.unpack_from("=6I", attr.raw)
        match command:
            case bpf_sys.PROG_LOAD:
                self.programs[99] = attr.raw[48:64].rstrip(b"\0"), self.tag
                return self.opened(99)
            case bpf_sys.PROG_ATTACH:
                if words[3] & bpf_sys.F_REPLACE:
                    old = self.ids[struct.unpack_from("=I", attr.raw, 16)[0]]
                    self.attached[self.attached.index(old)] = self.ids[words[1]]
                else:
                    self.attached.append(self.ids[words[1]])
            case bpf_sys.PROG_DETACH:
                self.attached.remove(self.ids[words[1]])
            case bpf_sys.PROG_GET_FD_BY_ID:
                if words[0] not in self.programs:
                    raise FileNotFoundError(errno.ENOENT, "gone")
                return self.opened(words[0])
            case bpf_sys.OBJ_GET_INFO_BY_FD:
                name, tag = self.programs[self.ids[words[0]]]
                address = struct.unpack_from("=Q", attr.raw, 8)[0]
                info = (bytes(8) + tag).ljust(64, b"\7") + name.ljust(16, b"\0") + b"\7" * 8
                ctypes.memmove(address, info, len(info))
            case bpf_sys.PROG_QUERY:
                address = struct.unpack_from("=Q", attr.raw, 16)[0]
                ids = struct.pack(f"={len(self.attached)}I", *self.attached)
                ctypes.memmove(address, ids, len(ids))
                struct.pack_into("=I", attr, 24, len(self.attached))
        return 0


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(bpf_sys, "_bpf", kernel)
    return kernel


PROGRAM = bytes(range(24))


@pytest.mark.parametrize(("kind", "size"), [(DEVICE, 64), (CONNECT4, 72)])
def test_bpf_load_passes_the_whole_program(kernel: Kernel, kind: Kind, size: int) -> None:
    os.close(bpf_sys.load(PROGRAM, name=b"it", kind=kind))
    ((command, told, attr),) = kernel.calls
    program, count, instructions, licence, level, length, log = struct.unpack_from("=IIQQIIQ", attr)
    assert (command, told) == (5, size)
    assert (program, count, level, length, log) == (kind.program, 3, 0, 0, 0)
    assert instructions
    assert licence
    assert attr[40:48] == bytes(8)
    assert attr[48:64] == b"it".ljust(16, b"\0")
    assert struct.unpack_from("=II", attr, 64) == (0, kind.attach if kind.told else 0)


def test_bpf_load_that_fails_is_tried_again_for_the_words_of_the_verifier(kernel: Kernel) -> None:
    kernel.said = b" R7 !read_ok\n"
    kernel.fails = lambda command, _attr: OSError(errno.EACCES, "Permission denied")
    with pytest.raises(BpfError) as raised:
        bpf_sys.load(PROGRAM)
    assert raised.value.what == "cannot load a device program: Permission denied: R7 !read_ok"
    assert raised.value.remedy == "see dmesg"
    assert [struct.unpack_from("=II", attr, 24) for _, _, attr in kernel.calls] == [(0, 0), (1, 65536)]


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.EPERM, DEVICE, "run as root with CAP_BPF"),
        (errno.ENOSYS, DEVICE, "CONFIG_BPF_SYSCALL, or MESOS_GPU_ISOLATION=cgroup1"),
        (errno.EINVAL, DEVICE, "(4.15 or newer), or MESOS_GPU_ISOLATION=cgroup1"),
        (errno.EINVAL, CONNECT4, "(4.18 or newer), or MESOS_GPU_CONTROL_PORTS=off"),
        (errno.ENOMEM, DEVICE, "see dmesg"),
    ],
)
def test_bpf_refusal_has_its_remedy(kernel: Kernel, number: int, kind: Kind, remedy: str) -> None:
    kernel.fails = lambda command, _attr: OSError(number, "no")
    with pytest.raises(BpfError, match="no") as raised:
        bpf_sys.load(PROGRAM, kind=kind)
    assert raised.value.what == f"cannot load a {kind.what} program: no"
    assert remedy in raised.value.remedy


def test_bpf_programs_of_a_cgroup_are_told_by_name_and_tag(kernel: Kernel) -> None:
    kernel.programs = {7: (b"sd_devices", b"12345678"), 8: (b"mesos_gpu", b"abcdefgh")}
    kernel.attached = [7, 6, 8]  # 6 is gone since
    before = len(os.listdir("/proc/self/fd"))
    assert bpf_sys.query(3, CONNECT4) == (
        Attached(7, "sd_devices", b"12345678"),
        Attached(8, "mesos_gpu", b"abcdefgh"),
    )
    assert len(os.listdir("/proc/self/fd")) == before
    command, size, attr = kernel.calls[0]
    assert (command, size) == (16, 64)
    assert struct.unpack_from("=IIII", attr) == (3, CONNECT4.attach, 0, 0)
    assert struct.unpack_from("=I", attr, 24) == (64,)


@pytest.mark.parametrize(
    ("attached", "calls", "left"),
    [
        ([7], [("attach", 16, 2)], [7, 99]),
        ([7, 8], [("attach", 20, 6)], [7, 99]),
        ([8, 7, 9], [("attach", 16, 2), ("detach", 12, 0), ("detach", 12, 0)], [7, 99]),
    ],
)
def test_bpf_program_takes_the_place_of_ours_alone(
    kernel: Kernel, attached: list[int], calls: list[tuple[str, int, int]], left: list[int]
) -> None:
    kernel.programs = dict.fromkeys((8, 9), (b"mesos_gpu", b"abcdefgh")) | {7: (b"another", b"12345678")}
    kernel.attached = attached
    before = len(os.listdir("/proc/self/fd"))
    assert not bpf_sys.installed(5, PROGRAM, CONNECT4)
    kernel.calls.clear()
    bpf_sys.install(5, PROGRAM, CONNECT4)
    names = {bpf_sys.PROG_ATTACH: "attach", bpf_sys.PROG_DETACH: "detach"}
    seen = [(names[call], size, attr) for call, size, attr in kernel.calls if call in names]
    assert [(name, size, struct.unpack_from("=I", attr, 12)[0]) for name, size, attr in seen] == calls
    assert {struct.unpack_from("=I", attr)[0] for _, _, attr in seen} == {5}
    assert {struct.unpack_from("=I", attr, 8)[0] for _, _, attr in seen} == {CONNECT4.attach}
    assert kernel.attached == left
    assert bpf_sys.installed(5, PROGRAM, CONNECT4)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("number", "is_tried"), [(errno.EINVAL, True), (errno.EPERM, False)])
def test_bpf_program_comes_before_ours_goes_where_none_can_be_replaced(
    kernel: Kernel, number: int, is_tried: bool
) -> None:
    kernel.programs = {8: (b"mesos_gpu", b"abcdefgh")}
    kernel.attached = [8]

    def old(command: int, attr: bytes) -> OSError | None:
        replaces = command == bpf_sys.PROG_ATTACH and struct.unpack_from("=I", attr, 12)[0] & 4
        return OSError(number, "no") if replaces else None

    kernel.fails = old
    if is_tried:
        bpf_sys.install(5, PROGRAM)
    else:
        with pytest.raises(BpfError, match="cannot attach a device program: no"):
            bpf_sys.install(5, PROGRAM)
    assert kernel.attached == ([99] if is_tried else [8])


def test_bpf_is_not_called_on_a_machine_whose_number_of_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bpf_sys, "_SYSCALL", {})
    with pytest.raises(OSError, match="no number known") as raised:
        bpf_sys.open_program(1)
    assert raised.value.errno == errno.ENOSYS
