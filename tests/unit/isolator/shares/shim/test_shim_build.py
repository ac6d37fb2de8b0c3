"""Our libraries, built: by any compiler, for old systems, found again; and what happens without a compiler."""

import os
import platform
import shutil
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from isolator.shares.shim import build, sources
from isolator.shares.shim.exports import exports, wrapped
from mesos_gpu.errors import Unavailable
from volumes.keys import variant_of

OLDEST = (2, 17)  # of CentOS 7, the oldest that images for today's CUDA are built on
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


def needs(library: Path) -> tuple[set[str], list[str], tuple[int, ...]]:
    """DT_NEEDED, DT_RPATH, and the newest GLIBC_* version that a library asks for."""
    with open(library, "rb") as file:
        elf = ELFFile(file)
        dynamic, versions = elf.get_section_by_name(".dynamic"), elf.get_section_by_name(".gnu.version_r")
        assert isinstance(dynamic, DynamicSection)
        assert isinstance(versions, GNUVerNeedSection)
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}  # type: ignore[attr-defined]
        paths = [tag.rpath for tag in dynamic.iter_tags("DT_RPATH")]  # type: ignore[attr-defined]
        assert not list(dynamic.iter_tags("DT_RUNPATH")), "it would go behind LD_LIBRARY_PATH"
        names = [each.name for _, group in versions.iter_versions() for each in group]
    return needed, paths, max(tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names)


@pytest.mark.parametrize("name", LIBRARIES)
def test_shim_needs_an_old_libc_and_the_drivers_library_only(
    libraries: tuple[Path, dict[str, str]], name: str
) -> None:
    needed, paths, newest = needs(Path(libraries[1][name]))
    real = "libmgpu-real-cuda.so" if "cuda" in name else "libmgpu-real-ml.so"
    assert needed == {real, "libc.so.6"}
    assert paths == ["$ORIGIN:/usr/local/nvidia/lib64"]
    assert newest <= OLDEST


def test_shim_exports_the_wrapped_functions_only(libraries: tuple[Path, dict[str, str]]) -> None:
    assert exports(Path(libraries[1]["libcuda.so.1"])) == wrapped()
    assert exports(Path(libraries[1]["libnvidia-ml.so.1"])) == {
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
    }


def test_shim_is_built_once_and_found_again(tmp_path: Path) -> None:
    env = {"MESOS_GPU_CACHE": str(tmp_path), "MESOS_GPU_CC": compiler_that_copies(tmp_path)}
    assert build.built(env) is None
    shim = build.have(env)
    assert shim == build.built(env)
    assert shim.variant == sources.variant() == variant_of(sources.digest())
    assert Path(shim.cuda).parent.name == f"{sources.digest()[:16]}-{platform.machine()}"
    assert build.have({**env, "PATH": "", "MESOS_GPU_CC": "no-such-compiler"}) == shim
    assert {path.name for path in Path(shim.cuda).parent.iterdir()} == {*LIBRARIES, "digest"}
    assert [path.name for path in (tmp_path / "shim").iterdir()] == [Path(shim.cuda).parent.name], "no litter"


def compiler_that_copies(tmp_path: Path) -> str:
    """What stands for a compiler where nothing is to be compiled: it writes what it was told to write."""
    program = tmp_path / "cc"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho built >"$2"\n')
    program.chmod(0o755)
    return str(program)


def test_libraries_of_other_sources_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"MESOS_GPU_CACHE": str(tmp_path), "MESOS_GPU_CC": compiler_that_copies(tmp_path)}
    shim = build.have(env)
    monkeypatch.setattr(build, "digest", lambda: "f" * 64)
    assert build.built(env) is None
    monkeypatch.setattr(build, "digest", lambda: shim.digest)
    (Path(shim.cuda).parent / "digest").write_text("another")
    assert build.built(env) is None
    assert build.have(env) == shim, "built anew in its place"


def test_libraries_in_the_package_need_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases have them: built/<machine> beside the sources."""
    package = tmp_path / "package"
    monkeypatch.setattr(build, "SOURCES", package)
    directory = package / "built" / "aarch64"
    directory.mkdir(parents=True)
    (directory / "digest").write_text(sources.digest())
    shim = build.built({"MESOS_GPU_CACHE": str(tmp_path)}, "aarch64")
    assert shim is not None
    assert shim.cuda == str(directory / "libcuda.so.1")
    assert build.built({"MESOS_GPU_CACHE": str(tmp_path)}, "x86_64") is None


def test_shim_build_without_a_compiler_says_what_to_do(tmp_path: Path) -> None:
    env = {"MESOS_GPU_CACHE": str(tmp_path), "PATH": str(tmp_path)}
    assert build.compiler(env) is None
    with pytest.raises(Unavailable) as raised:
        build.have(env)
    assert "no C compiler (cc, gcc, clang)" in raised.value.what
    assert "apt-get install gcc libc6-dev" in raised.value.remedy


def test_a_compiler_that_is_named_goes_first_and_may_have_arguments(tmp_path: Path) -> None:
    assert build.compiler({"MESOS_GPU_CC": "zig cc -target x", "PATH": ""}) == ["zig", "cc", "-target", "x"]
    env = {"MESOS_GPU_CACHE": str(tmp_path), "MESOS_GPU_CC": "no-such-compiler"}
    with pytest.raises(Unavailable, match="there is no compiler no-such-compiler"):
        build.have(env)
    env["MESOS_GPU_CC"] = shutil.which("false") or "false"
    with pytest.raises(Unavailable, match="cannot build the libraries"):
        build.have(env)
    assert list((tmp_path / "shim").iterdir()) == [], "nothing half made"


@pytest.mark.long
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_shim_is_built_for_both_machines_by_a_compiler_of_pypi(tmp_path: Path, machine: str) -> None:
    """Fetches 340 MB unless they are cached."""
    try:
        command = build.zig(os.environ, machine)
    except Unavailable as error:
        pytest.skip(str(error))
    build.compile_into(tmp_path / machine, command)
    for name in LIBRARIES:
        needed, _, newest = needs(tmp_path / machine / name)
        # until glibc 2.34 the library of threads was one of its own, and the compiler is told of 2.17
        systems = {"libc.so.6", "libpthread.so.0", "ld-linux-aarch64.so.1"}
        assert needed <= {"libmgpu-real-cuda.so", "libmgpu-real-ml.so", *systems}
        assert newest <= OLDEST
        with open(tmp_path / machine / name, "rb") as file:
            assert ELFFile(file)["e_machine"] == {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[machine]
    assert exports(tmp_path / machine / "libcuda.so.1") == wrapped()
