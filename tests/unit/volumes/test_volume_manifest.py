"""What belongs into a driver volume, under which names, and the reasons for all the rest."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mesos_gpu.errors import NotFound
from volumes.manifest import LIBRARIES, PROGRAMS, plan, versions
from volumes.model import DriverFiles, Elf, Entry, File, Group, Link, Plan

V = "535.261.03"
LIB = "/usr/lib/x86_64-linux-gnu"


def library(
    name: str,
    soname: str | None = None,
    *,
    needed: Sequence[str] = (),
    names: Sequence[str] = (),
    bits: int = 64,
    machine: str = "x86_64",
    abi: tuple[int, ...] | None = None,
    glibc: tuple[int, ...] = (2, 17),
    directory: str = LIB,
    hwcap: str = "",
) -> File:
    elf = Elf(bits, machine, soname, tuple(needed), abi, glibc)
    return File(f"{directory}/{name}", tuple(sorted({name, *names})), elf, hwcap)


def program(name: str, directory: str = "/usr/bin", machine: str = "x86_64") -> File:
    return File(f"{directory}/{name}", (name,), Elf(64, machine))


CUDA = library(f"libcuda.so.{V}", "libcuda.so.1")
ML = library(f"libnvidia-ml.so.{V}", "libnvidia-ml.so.1")


def planned(*files: File, programs: Sequence[File] = (), version: str = V) -> Plan:
    return plan(DriverFiles((CUDA, ML, *files), tuple(programs)), version)


def targets(made: Plan) -> set[str]:
    return {entry.target for entry in made.entries}


def links(made: Plan) -> dict[str, str]:
    return {link.target: link.to for link in made.links}


def reason(made: Plan, path: str) -> str:
    reasons = [each.reason for each in made.excluded if each.path == path]
    assert len(reasons) == 1, made.excluded
    return reasons[0]


def test_manifest_takes_a_library_with_its_soname_and_cached_names() -> None:
    made = planned(
        library(f"libnvcuvid.so.{V}", "libnvcuvid.so.1", names=["libnvcuvid.so", "libnvcuvid.so.1"])
    )
    assert Entry(f"lib64/libnvcuvid.so.{V}", f"{LIB}/libnvcuvid.so.{V}", Group.VIDEO) in made.entries
    assert Link("lib64/libnvcuvid.so.1", f"libnvcuvid.so.{V}") in made.links
    assert Link("lib64/libnvcuvid.so", f"libnvcuvid.so.{V}") in made.links


def test_manifest_makes_no_link_by_a_soname_that_is_no_name_of_the_driver() -> None:
    made = planned(
        library(f"libx.so.{V}", "libstdc++.so.6"), library(f"libnvidia-y.so.{V}", "libnvidia-allocator.so.1")
    )
    assert {f"lib64/libx.so.{V}", f"lib64/libnvidia-y.so.{V}"} <= targets(made)
    assert "lib64/libstdc++.so.6" not in links(made)
    assert links(made)["lib64/libnvidia-allocator.so.1"] == f"libnvidia-y.so.{V}"


def test_manifest_adds_the_bare_libcuda_and_indirect_glx() -> None:
    made = planned(library(f"libGLX_nvidia.so.{V}", "libGLX_nvidia.so.0"))
    assert links(made)["lib64/libcuda.so"] == f"libcuda.so.{V}"
    assert links(made)["lib64/libGLX_indirect.so.0"] == f"libGLX_nvidia.so.{V}"


def test_manifest_puts_32_bit_libraries_into_lib() -> None:
    small = library(
        f"libcuda.so.{V}", "libcuda.so.1", bits=32, machine="i686", directory="/usr/lib/i386-linux-gnu"
    )
    made = planned(small)
    assert f"lib/libcuda.so.{V}" in targets(made)
    assert links(made)["lib/libcuda.so.1"] == f"libcuda.so.{V}"
    assert links(made)["lib/libcuda.so"] == f"libcuda.so.{V}"


LEFT_OUT = {
    "another driver's": (
        library("libnvidia-encode.so.550.163.01", "libnvidia-encode.so.1"),
        f"it is of version 550.163.01, not {V}",
    ),
    "no version": (library("libnvidia-cfg.so", "libnvidia-cfg.so.1"), "its name has no version"),
    "old TLS": (
        library(f"libnvidia-tls.so.{V}", f"libnvidia-tls.so.{V}", abi=(2, 2, 5)),
        "its thread-local storage is for Linux 2.2.5, which is obsolete",
    ),
    "Mesa's EGL": (
        library("libEGL.so.1.0.0", "libEGL.so.1", needed=["libgbm.so.1", "libc.so.6"]),
        "it is of another vendor: it needs neither libGLdispatch nor a library of NVIDIA's",
    ),
    "foreign machine": (
        library(f"libnvidia-cfg.so.{V}", machine="aarch64", directory="/usr/lib/aarch64-linux-gnu"),
        "it is for aarch64, and the driver for x86_64",
    ),
    "X server's": (library(f"libnvidia-wfb.so.{V}"), "it is a module of the X server"),
    "settings'": (library(f"libnvidia-gtk3.so.{V}"), "nvidia-settings uses it"),
    "other runtime's": (
        library("libnvidia-container.so.1.14.3", "libnvidia-container.so.1"),
        "it is of another container runtime, not of the driver",
    ),
    "Wine's, without a version": (library("libnvidia-api.so.1"), "it serves Windows programs under Wine"),
    "a version of its own, elsewhere": (
        library("libnvidia-new.so.1", "libnvidia-new.so.1", directory="/opt/new"),
        "it has a version of its own, and lies apart from the libraries of this driver",
    ),
    "a version of its own, another SONAME": (
        library("libnvidia-new.so.1", "libnvidia-old.so.1"),
        "its SONAME libnvidia-old.so.1 does not confirm its name",
    ),
    "no ELF": (File(f"{LIB}/libnvidia-cfg.so.{V}", (), None), "it is no ELF file"),
}


@pytest.mark.parametrize(("file", "why"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_manifest_leaves_out_with_a_reason(file: File, why: str) -> None:
    made = planned(file)
    assert file.path not in {entry.source for entry in made.entries}
    assert reason(made, file.path) == why


def test_programs_are_taken_but_what_loads_modules() -> None:
    modprobe = program("nvidia-modprobe")
    made = planned(programs=[program("nvidia-smi"), program("nvidia-cuda-mps-server", "/usr/sbin"), modprobe])
    assert {"bin/nvidia-smi", "bin/nvidia-cuda-mps-server"} <= targets(made)
    assert reason(made, modprobe.path) == "it loads kernel modules, which is the host's matter"


def test_manifest_takes_the_tls_variant_for_current_threads() -> None:
    old = library(f"libnvidia-tls.so.{V}", f"libnvidia-tls.so.{V}", abi=(2, 2, 5))
    new = library(
        f"libnvidia-tls.so.{V}", f"libnvidia-tls.so.{V}", abi=(2, 3, 99), directory=f"{LIB}/tls", hwcap="tls"
    )
    made = planned(old, new)
    assert [e.source for e in made.entries if "tls" in e.target] == [new.path]


def test_a_library_for_better_processors_is_left_for_the_one_that_runs_on_all() -> None:
    plain = library(f"libnvidia-nvvm.so.{V}", "libnvidia-nvvm.so.4")
    fast = library(
        f"libnvidia-nvvm.so.{V}",
        "libnvidia-nvvm.so.4",
        directory=f"{LIB}/glibc-hwcaps/x86-64-v3",
        hwcap="glibc-hwcaps/x86-64-v3",
    )
    made = planned(fast, plain)
    assert [e.source for e in made.entries if "nvvm" in e.target] == [plain.path]
    assert reason(made, fast.path) == f"{plain.path} is taken instead, which runs on every processor"


def test_libraries_with_versions_of_their_own() -> None:
    wayland = library("libnvidia-egl-wayland.so.1.1.11", "libnvidia-egl-wayland.so.1")
    old_nvvm = library("libnvidia-nvvm.so.4.0.0", "libnvidia-nvvm.so.4")
    made = planned(wayland, old_nvvm)
    assert {f"lib64/{wayland.name}", f"lib64/{old_nvvm.name}"} <= targets(made)
    new_nvvm = library(f"libnvidia-nvvm.so.{V}", "libnvidia-nvvm.so.4")
    made = planned(old_nvvm, new_nvvm)
    assert reason(made, old_nvvm.path) == f"{new_nvvm.path} is taken instead"
    assert links(made)["lib64/libnvidia-nvvm.so.4"] == new_nvvm.name


DISPATCH = library("libGLdispatch.so.0.0.0", "libGLdispatch.so.0")
GLX = library("libGLX.so.0.0.0", "libGLX.so.0", needed=["libGLdispatch.so.0"])
GL = library("libGL.so.1.7.0", "libGL.so.1", needed=["libGLdispatch.so.0", "libGLX.so.0"])


def test_neutral_entry_points_are_accepted_by_libgldispatch_so_0() -> None:
    made = planned(DISPATCH, GLX, GL)
    assert {"lib64/libGL.so.1.7.0", "lib64/libGLX.so.0.0.0", "lib64/libGLdispatch.so.0.0.0"} <= targets(made)
    assert links(made)["lib64/libGL.so.1"] == "libGL.so.1.7.0"


def test_the_drivers_own_entry_points_are_accepted_by_its_core() -> None:
    own = library(f"libGL.so.{V}", "libGL.so.1", needed=[f"libnvidia-glcore.so.{V}"])
    old = library("libGL.so.470.82.01", "libGL.so.1", needed=["libnvidia-glcore.so.470.82.01"])
    made = planned(own, old)
    assert f"lib64/libGL.so.{V}" in targets(made)
    assert reason(made, old.path) == f"it is of version 470.82.01, not {V}"


def test_an_entry_point_whose_own_needs_are_not_met_is_left_out() -> None:
    made = planned(DISPATCH, GL)
    assert reason(made, GL.path) == "it needs libGLX.so.0, which is not taken"


def test_entry_points_built_for_a_newer_glibc_than_the_drivers_would_break_older_images() -> None:
    newer = replace(GLX, elf=Elf(64, "x86_64", "libGLX.so.0", ("libGLdispatch.so.0",), None, (2, 34)))
    made = planned(DISPATCH, newer, GL)
    assert "glibc 2.34" in reason(made, newer.path)
    assert reason(made, GL.path) == "it needs libGLX.so.0, which is not taken"
    assert "lib64/libGLdispatch.so.0.0.0" in targets(made)


def test_manifest_takes_unlisted_libraries_of_the_drivers_version() -> None:
    core = library(f"libnvidia-glcore.so.{V}", needed=[f"libnvidia-fresh.so.{V}"])
    fresh = library(f"libnvidia-fresh.so.{V}", needed=["libnvidia-deeper.so.1"])
    deeper = library(f"libnvidia-deeper.so.{V}", "libnvidia-deeper.so.1")
    made = planned(core, fresh, deeper)
    assert {f"lib64/{fresh.name}", f"lib64/{deeper.name}"} <= targets(made)
    assert links(made)["lib64/libnvidia-deeper.so.1"] == deeper.name


def test_manifest_says_what_programs_will_miss() -> None:
    lonely = library(f"libnvidia-eglcore.so.{V}", needed=[f"libnvidia-glsi.so.{V}", "libm.so.6"])
    made = planned(lonely)
    assert made.missing == (
        "bin/nvidia-smi is not there",
        f"libnvidia-glsi.so.{V} is not there, which lib64/libnvidia-eglcore.so.{V} needs",
    )


def test_a_program_or_library_of_the_same_name_elsewhere_is_the_second() -> None:
    second = program("nvidia-smi", "/usr/local/bin")
    made = planned(programs=[program("nvidia-smi"), second])
    assert reason(made, second.path) == "/usr/bin/nvidia-smi is taken instead"


def test_a_library_name_that_leads_to_a_program_is_the_program() -> None:
    smi = program("nvidia-smi")
    made = planned(replace(smi, names=("libcuda.so", "nvidia-smi")), programs=[smi])
    assert "bin/nvidia-smi" in targets(made)
    assert smi.path not in {each.path for each in made.excluded}


@pytest.mark.parametrize(
    ("machine", "directory"),
    [("aarch64", "/usr/lib/aarch64-linux-gnu"), ("ppc64le", "/usr/lib/powerpc64le-linux-gnu")],
)
def test_libraries_of_other_machines_are_planned(machine: str, directory: str) -> None:
    files = [
        library(f"{stem}.so.{V}", f"{stem}.so.1", machine=machine, directory=directory)
        for stem in ("libcuda", "libnvidia-ml")
    ]
    made = plan(DriverFiles(tuple(files)), V)
    assert targets(made) == {f"lib64/libcuda.so.{V}", f"lib64/libnvidia-ml.so.{V}"}


def test_no_library_of_the_version_names_those_there_are() -> None:
    with pytest.raises(NotFound, match=f"no library of driver 550.54.14 was found: there are those of {V}"):
        plan(DriverFiles((CUDA, ML)), "550.54.14")


def test_versions_are_sorted_by_number() -> None:
    files = [library(f"libcuda.so.{version}") for version in ("550.54", "99.1", "535.261.03")]
    assert versions(DriverFiles((*files, library("libcuda.so.1")))) == ("99.1", "535.261.03", "550.54")


def test_the_lists_hold_all_that_the_three_had() -> None:
    """Mesos 1.11.0, nvidia-docker 1.0.1 and libnvidia-container: what one of them takes by name, we know."""
    theirs = (
        "libnvidia-ml libnvidia-cfg libnvidia-gpucomp libcuda libnvidia-opencl libnvidia-ptxjitcompiler "
        "libnvidia-fatbinaryloader libnvidia-compiler libvdpau_nvidia libnvidia-encode libnvcuvid "
        "libnvidia-eglcore libnvidia-glcore libnvidia-tls libnvidia-glsi libnvidia-fbc libnvidia-ifr "
        "libGLX_nvidia libEGL_nvidia libGLESv2_nvidia libGLESv1_CM_nvidia libGL libEGL libGLESv1_CM libGLESv2 "
        "libGLX libOpenGL libGLdispatch libnvidia-egl-wayland libnvidia-nscq libcudadebugger libnvidia-allocator "
        "libnvidia-pkcs11 libnvidia-pkcs11-openssl3 libnvidia-nvvm libnvidia-tileiras libnvidia-opticalflow "
        "libnvidia-rtcore libnvoptix libnvidia-glvkspirv libnvidia-cbl libnvidia-ngx"
    )
    assert set(theirs.split()) <= LIBRARIES.keys()
    assert "libnvidia-nvvm70" in LIBRARIES
    programs = "smi debugdump persistenced cuda-mps-control cuda-mps-server"
    assert {*(f"nvidia-{name}" for name in programs.split()), "nv-fabricmanager"} == PROGRAMS.keys()
