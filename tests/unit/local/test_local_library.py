"""The library that is called through its ABI: any other build is refused before a call."""

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from mesos_gpu.errors import Damaged
from mesos_gpu.libmesos import containerizer, cxx, master, patch_elf


def test_library_of_another_build_is_not_patched(tmp_path: Path) -> None:
    path = Path(shutil.copy(Path(sys.executable).resolve(), tmp_path / "other"))
    before = path.read_bytes()
    with pytest.raises(Damaged, match=r"is not the library of mesos\.scheduler 1\.11\.0") as refusal:
        patch_elf.patch(path)
    assert str(path) in refusal.value.remedy
    assert path.read_bytes() == before


def test_library_of_another_build_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "libmesos.so"
    path.write_bytes(b"\x7fELF" + bytes(1000))
    with pytest.raises(cxx.CallFailed, match=r"is not the library of mesos\.scheduler 1\.11\.0"):
        cxx.Mesos(str(path))


def test_library_with_only_the_build_id_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "libmesos.so"
    path.write_bytes(b"\x7fELF".ljust(cxx.BUILD_ID_AT, b"\0") + cxx.BUILD_ID)
    with pytest.raises(cxx.CallFailed, match="cannot be loaded"):
        cxx.Mesos(str(path))


def test_library_checks_name_one_build() -> None:
    assert cxx.BUILD_ID.hex() == patch_elf.BUILD_ID


def test_a_program_says_why_it_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "libmesos.so"
    path.write_bytes(b"")
    assert master.main(str(path), []) == 1
    assert capsys.readouterr().err == f"mesos: {path} is not the library of mesos.scheduler 1.11.0\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "no subcommand 'help'"),
        (["fetch"], "no subcommand 'fetch'"),
        (["mount", "--operation=bind", "--path=/"], "Unsupported mount operation 'bind'"),
        (["mount", "--operation=make-rslave", "--path=/no/such"], "No such file or directory"),
    ],
)
def test_containerizer_helper_says_what_it_cannot_do(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert containerizer.main("/no/library", ["mesos-containerizer", *argv]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rootfs", "sources", "kept"),
    [
        ("/image", ["/image/proc/absent", "/image/proc/self", "/image/etc/absent"], [1, 2]),
        ("/image", ["/other/proc/absent"], [0]),
        ("/a/proc/b", ["/a/proc/b/proc/absent", "/a/proc/b/etc"], [1]),
        (None, ["/image/proc/absent"], [0]),
    ],
)
def test_binds_of_files_that_this_kernels_proc_lacks_are_dropped(
    rootfs: str | None, sources: list[str], kept: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Binds onto themselves, that is; others fail as they should."""
    mounts = [{"source": source, "target": source, "flags": 4096} for source in sources]
    mounts.append({"source": "/image/proc/absent", "target": "/image/x"})
    info = {"mounts": mounts, "name": "rootfs", **({"rootfs": rootfs} if rootfs else {})}
    monkeypatch.setenv(containerizer.LAUNCH_INFO, json.dumps(info))
    other = tmp_path / "libmesos.so"
    other.write_bytes(b"")
    assert containerizer.main(str(other), ["mesos-containerizer", "launch"]) == 1
    after = json.loads(os.environ[containerizer.LAUNCH_INFO])
    assert after == {**info, "mounts": [mounts[n] for n in (*kept, -1)]}


def test_strings_and_options_have_the_layout_of_libstdcxx() -> None:
    assert cxx.read_string(cxx.string("grün").value or 0) == "grün"
    some, none = cxx.option("x").value or 0, cxx.option().value or 0
    assert cxx.read_string(some + 8) == "x"
    assert [ctypes.c_int.from_address(at).value for at in (some, none)] == [cxx.SOME, cxx.NONE]
