"""Releases of package files: Debian packages and wheels."""

import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

#: Names of the Debian packages that `make deb` builds.
PROGRAM, AGENT = "mesos-gpu", "mesos-gpu-agent"
_MAGIC: Final = b"!<arch>\n"
_HEADER: Final = 60  # bytes before each member of an archive of ar(5)
_MAX_BYTES: Final = 1 << 20  # of a member that describes a package
_WHEEL: Final = re.compile(r"mesos_gpu-([0-9][\w.+!]*)-py3-none-any\.whl")


@dataclass(frozen=True, slots=True)
class Release:
    """Release of a package file.

    Attributes:
        name: Name of the package.
        version: Version of the release.
        architecture: Architecture in Debian's terms, such as "amd64"; "all" for any.
        depends: Dependencies in Debian's syntax; "" if none are given.
    """

    name: str
    version: str
    architecture: str = "all"
    depends: str = ""


def of_wheel(path: Path) -> Release:
    """Return the release that the name of a wheel gives.

    Raises:
        ValueError: The file is not a wheel of this program; the message has the expected form.
    """
    if (named := _WHEEL.fullmatch(path.name)) is None:
        raise ValueError(f"must be mesos_gpu-VERSION-py3-none-any.whl of `make wheel`, got {path.name}")
    return Release("mesos_gpu", named[1])


def of_deb(path: Path, name: str) -> Release:
    """Return the release that the control file of a Debian package gives.

    Args:
        path: Path of the package.
        name: Expected package name.

    Raises:
        ValueError: The file is not a Debian package, or is another package; the message says which.
        OSError: The file cannot be read.
    """
    expected = f"must be the package {name} of `make deb`, a file that ends in .deb"
    try:
        with path.open("rb") as file:
            text = _control(file)
    except (ValueError, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{expected}; {path.name} is not a Debian package: {error}") from error
    control = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")
    if control.get("Package") != name:
        raise ValueError(f"{expected}; {path.name} has {control.get('Package', 'no name')}")
    if missing := {"Version", "Architecture"} - control.keys():
        raise ValueError(f"{expected}; {path.name} has no {' and no '.join(sorted(missing))}")
    return Release(name, control["Version"], control["Architecture"], control.get("Depends", ""))


def _control(file: IO[bytes]) -> str:
    """Return the text of the control file of a Debian package.

    Raises:
        ValueError: The package has no control file.
        TarError: The control archive cannot be read.
    """
    for member, data in _members(file):
        if member.startswith("control.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for member_info in archive:
                    if member_info.name.removeprefix("./") == "control" and (
                        opened := archive.extractfile(member_info)
                    ):
                        return opened.read(_MAX_BYTES).decode()
    raise ValueError("it has no control file")


def _members(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the members of an ar(5) archive, up to the first that is larger than `_MAX_BYTES`.

    Raises:
        ValueError: The file is not an ar archive.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is not an ar archive")
    while len(header := file.read(_HEADER)) == _HEADER:
        size = int(header[48:58])
        if size > _MAX_BYTES:
            return
        data = file.read(size + size % 2)
        yield header[:16].decode("ascii").strip().rstrip("/"), data[:size]
