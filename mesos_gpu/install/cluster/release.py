"""What a file that is to be installed says of itself: a Debian package, a wheel."""

import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

#: Names of Debian packages that `make deb` builds.
PROGRAM, AGENT = "mesos-gpu", "mesos-gpu-agent"
_MAGIC: Final = b"!<arch>\n"
_HEADER: Final = 60  # bytes before each member of an archive of ar(5)
_MAX_BYTES: Final = 1 << 20  # of what describes a package
_WHEEL: Final = re.compile(r"mesos_gpu-([0-9][\w.+!]*)-py3-none-any\.whl")


@dataclass(frozen=True, slots=True)
class Release:
    """A file of a release.

    Attributes:
        name: Of the package.
        version: Its release.
        architecture: Debian's name of the machine that it is for, as "amd64"; "all": of any.
        depends: Debian packages that it needs, as Debian writes them; "": it does not say.
    """

    name: str
    version: str
    architecture: str = "all"
    depends: str = ""


def of_wheel(path: Path) -> Release:
    """What the name of a wheel says.

    Raises:
        ValueError: It is none of ours; the message says what it should be.
    """
    if (named := _WHEEL.fullmatch(path.name)) is None:
        raise ValueError(f"must be mesos_gpu-VERSION-py3-none-any.whl of `make wheel`, got {path.name}")
    return Release("mesos_gpu", named[1])


def of_deb(path: Path, name: str) -> Release:
    """What a Debian package says.

    Args:
        path: Of the file.
        name: That the package must have.

    Raises:
        ValueError: It is no such package, or another; the message says which.
        OSError: It cannot be read.
    """
    wanted = f"must be the package {name} of `make deb`, a file that ends in .deb"
    try:
        with path.open("rb") as file:
            text = _control(file)
    except (ValueError, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{wanted}; {path.name} is no Debian package: {error}") from error
    said = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")
    if said.get("Package") != name:
        raise ValueError(f"{wanted}; {path.name} has {said.get('Package', 'no name')}")
    if missing := {"Version", "Architecture"} - said.keys():
        raise ValueError(f"{wanted}; {path.name} says no {' and no '.join(sorted(missing))}")
    return Release(name, said["Version"], said["Architecture"], said.get("Depends", ""))


def _control(file: IO[bytes]) -> str:
    """The file `control` of a package.

    Raises:
        ValueError: There is none.
        TarError: As tarfile.
    """
    for member, data in _members(file):
        if member.startswith("control.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for each in archive:
                    if each.name.removeprefix("./") == "control" and (opened := archive.extractfile(each)):
                        return opened.read(_MAX_BYTES).decode()
    raise ValueError("it has no control")


def _members(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of what is in an archive of ar(5), up to what is longer than a description can be.

    Raises:
        ValueError: It is no such archive.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is no archive of ar")
    while len(header := file.read(_HEADER)) == _HEADER:
        size = int(header[48:58])
        if size > _MAX_BYTES:
            return
        data = file.read(size + size % 2)
        yield header[:16].decode("ascii").strip().rstrip("/"), data[:size]
