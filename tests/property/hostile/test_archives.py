"""Archives of code that strangers made: taken or refused in words, and what is taken changes nothing outside."""

import gzip
import io
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from isolator.agent.uploads import extraction, look_through
from isolator.host.fetch_bounds import FetchLimits
from isolator.host.not_started import NotStarted
from tests.property.examples import examples

TYPES: Final = (
    tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE,
    tarfile.FIFOTYPE, tarfile.CONTTYPE,
)  # fmt: skip
PARTS: Final = st.sampled_from(
    ["a", "b", "c", ".", "..", "", "stdout", "containers", "\n", "é", "-x", "\udcff"]
)
PATHS: Final = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
TAKEN: Final = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)


@st.composite
def members(draw: st.DrawFn) -> tarfile.TarInfo:
    """A member: mostly one that is taken, so that archives get far."""
    usual = draw(st.booleans())
    kinds = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE) if usual else TYPES
    info = tarfile.TarInfo(draw(TAKEN if usual else PATHS))
    info.type, info.mode = draw(st.sampled_from(kinds)), draw(st.sampled_from([0o644, 0o755, 0o6755, 0]))
    info.linkname = draw(st.sampled_from([".", "a", "a/..", "b/../a", "../a"]) if usual else PATHS)
    info.size = draw(st.integers(0, 3)) if info.isreg() else 0
    return info


def packed(infos: list[tarfile.TarInfo]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info in infos:
            tar.addfile(info, io.BytesIO(b"out" if info.size else b""))
    return file.getvalue()


def is_taken(data: bytes, directory: Path) -> bool:
    path = directory / "archive"
    path.write_bytes(data)
    with path.open("r+b") as file:
        try:
            look_through(file, FetchLimits())
        except NotStarted:
            return False
    return True


@examples(60, 120)
@given(st.lists(members(), min_size=1, max_size=6))
def test_archive_that_is_taken_changes_nothing_outside(infos: list[tarfile.TarInfo]) -> None:
    with TemporaryDirectory() as name:
        above = Path(name)
        if not is_taken(gzip.compress(packed(infos), mtime=0), above):
            return
        for each in ("a", "b", "c"):
            (above / each).write_text("kept")
        inside = above / "sandbox"
        inside.mkdir()
        subprocess.run(
            extraction(str(above / "archive"), str(inside)), capture_output=True, timeout=60, check=False
        )
        assert {path.name for path in above.iterdir()} == {"archive", "sandbox", "a", "b", "c"}
        there = {each: (above / each).read_text() for each in ("a", "b", "c")}
        assert there == dict.fromkeys(("a", "b", "c"), "kept")
        for path in inside.rglob("*"):
            assert path.is_symlink() or not path.stat().st_mode & 0o6000, "nobody gains by running it"


@examples(95, 400)
@given(
    st.lists(members(), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=12),
    st.booleans(),
)
def test_bytes_of_any_kind_are_taken_or_refused(
    infos: list[tarfile.TarInfo], changes: list[tuple[int, int]], outside: bool
) -> None:
    data = bytearray(packed(infos) if not outside else gzip.compress(packed(infos), mtime=0))
    for at, byte in changes:
        data[at % min(len(data), 2048)] = byte
    with TemporaryDirectory() as name:
        is_taken(bytes(data) if outside else gzip.compress(bytes(data), mtime=0), Path(name))
