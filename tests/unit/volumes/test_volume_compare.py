"""What the others would take of a host, by their own rules."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.volumes.test_volume_manifest import CUDA, DISPATCH, GL, ML, V, library, program
from volumes.compare import OTHERS, Row, compare, markdown
from volumes.manifest import LIBRARIES, PROGRAMS, plan
from volumes.model import DriverFiles, Elf, File


def cached(file: File, *names: str) -> File:
    soname = file.elf.soname if file.elf else None
    return replace(file, cached=names or (soname or file.name,))


def row(file: File) -> Row:
    files = DriverFiles((cached(CUDA), cached(ML), file))
    return next(row for row in compare(files, plan(files, V)) if row.path == file.path)


def said(row: Row) -> Mapping[str, str]:
    return {"ours": row.ours, **{name: getattr(row, name) for name in OTHERS}}


CASES = {
    "all have it": (
        cached(library(f"libnvcuvid.so.{V}", "libnvcuvid.so.1")),
        {"ours": "yes", "mesos": "yes", "nvidia_docker": "yes", "libnvidia_container": "yes"},
    ),
    "newer than the old lists": (
        cached(library(f"libnvidia-nvvm.so.{V}", "libnvidia-nvvm.so.4")),
        {"ours": "yes", "mesos": "no: not in its list", "libnvidia_container": "yes"},
    ),
    "libGLdispatch.so.0": (
        cached(GL),
        {
            "mesos": "no: for another vendor's",
            "nvidia_docker": "yes",
            "libnvidia_container": "no: not of the version",
        },
    ),
    "not in the cache": (
        library(f"libnvidia-cfg.so.{V}", "libnvidia-cfg.so.1"),
        {"ours": "yes", "mesos": "no: not in the loader's cache", "nvidia_docker": "no: not in its list"},
    ),
    "another version's": (
        cached(library("libnvidia-encode.so.550.54.14", "libnvidia-encode.so.1")),
        {
            "ours": f"no: it is of version 550.54.14, not {V}",
            "mesos": "yes",
            "nvidia_docker": "yes",
            "libnvidia_container": "no: not of the version",
        },
    ),
    "TLS without a note": (
        cached(library(f"libnvidia-tls.so.{V}")),
        {"ours": "yes", "mesos": "no: old threads", "libnvidia_container": "no: old threads"},
    ),
    "a machine that nvidia-docker did not know": (
        replace(cached(library(f"libnvcuvid.so.{V}")), elf=Elf(64, "aarch64", "libnvcuvid.so.1")),
        {"mesos": "yes", "nvidia_docker": "no: not for aarch64", "libnvidia_container": "yes"},
    ),
    "the driver's own libGL": (
        cached(library(f"libGL.so.{V}", "libGL.so.1", needed=[f"libnvidia-glcore.so.{V}"])),
        {"ours": "yes", "mesos": "yes", "nvidia_docker": "yes", "libnvidia_container": "yes"},
    ),
}


@pytest.mark.parametrize(("file", "want"), CASES.values(), ids=CASES)
def test_each_tool_takes_files_by_its_own_rules(file: File, want: Mapping[str, str]) -> None:
    assert want.items() <= said(row(file)).items()


def test_programs_come_first_and_what_nobody_takes_is_no_row() -> None:
    files = DriverFiles((cached(CUDA), cached(ML)), (program("nvidia-smi"), program("nvidia-modprobe")))
    rows = compare(files, plan(files, V))
    assert [each.path.rpartition("/")[2] for each in rows] == ["nvidia-smi", CUDA.name, ML.name]


def test_the_table_ends_with_sums() -> None:
    files = DriverFiles((cached(CUDA), cached(ML), cached(DISPATCH)))
    text = markdown(compare(files, plan(files, V)))
    assert text.splitlines()[-1] == "| **of 3** | | **3** | **2** | **3** | **2** |"


def test_lists_of_other_tools_are_part_of_ours() -> None:
    for other in OTHERS.values():
        assert other.libraries <= LIBRARIES.keys()
        assert other.programs <= PROGRAMS.keys()
