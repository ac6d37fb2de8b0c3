"""Releases that the locks name, their licences as stated by the installed distributions, and their
dependencies.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from boolean import ParseError
from license_expression import ExpressionError, Licensing, get_spdx_licensing
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT: Final = Path(__file__).parents[1]
#: Lock files: for a checkout; for a host that runs the product, without and with its driver; for programs
#: that write and audit locks.
EVERYTHING, RUN, DRIVER, TOOLS = (
    ROOT / name
    for name in ("requirements.lock", "requirements-run.lock", "pymesos.lock", "requirements-tools.lock")
)
UNKNOWN: Final = "LicenseRef-unknown"
#: Words that distributions write in place of SPDX's names.
_WORDS: Final = {
    "apache 2.0": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "mit license": "MIT",
    "psfl": "PSF-2.0",
    "public domain": "LicenseRef-public-domain",
}
_CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "LicenseRef-BSD",  # the exact licence is not stated
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "LicenseRef-public-domain",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass(frozen=True, slots=True)
class Locked:
    """A release that a lock names, with the SHA-256 of each of its files, in hexadecimal."""

    name: str
    version: Version
    marker: Marker | None
    hashes: tuple[str, ...]

    @property
    def here(self) -> bool:
        """Return whether the release is for this Python on this system."""
        return self.marker is None or self.marker.evaluate()


def read(path: Path) -> list[Locked]:
    """Return all releases of a lock, their names in canonical form.

    Raises:
        ValueError: A line does not name a release with one version.
    """
    locked = []
    for line in path.read_text().replace("\\\n", "").splitlines():
        if not line or line.startswith("#"):
            continue
        wanted = Requirement(line.split(" --hash")[0])
        (pin,) = wanted.specifier
        if pin.operator != "==":
            raise ValueError(f"{path.name}: {line!r} is not one version")
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line))
        locked.append(Locked(canonicalize_name(wanted.name), Version(pin.version), wanted.marker, hashes))
    return locked


def licence(fields: Mapping[str, Any]) -> str:
    """Return the licence in a distribution's metadata (`PackageMetadata.json`), in SPDX's form; else
    `UNKNOWN`.
    """
    if expression := fields.get("license_expression"):
        return str(expression)
    words = str(fields.get("license", "")).strip().partition("\n")[0].strip()
    if spdx := _WORDS.get(words.lower()) or _spdx(words):
        return spdx
    stated = [
        str(each).rpartition(" :: ")[2] for each in fields.get("classifier", []) if "License ::" in str(each)
    ]
    names = sorted({_CLASSIFIERS[each] for each in stated if each in _CLASSIFIERS})
    return " AND ".join(names) or UNKNOWN


@functools.cache  # as it reads all of SPDX's list
def licensing() -> Licensing:
    """Return the parser of licence expressions, with the names of SPDX's list."""
    return get_spdx_licensing()


def _spdx(words: str) -> str:
    try:
        return words if licensing().parse(words, validate=True) else ""
    except (ExpressionError, ParseError):
        return ""


def installed(name: str) -> metadata.Distribution:
    """Return a distribution of this environment.

    Raises:
        PackageNotFoundError: The distribution is not installed.
    """
    return metadata.distribution(name)


def needs(name: str, extras: Iterable[str] = ()) -> Iterator[str]:
    """Yield names of the distributions that an installed one needs here, with extras of it and those that
    they name.
    """
    active_extras = ["", *extras]
    for line in installed(name).requires or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not any(
            wanted.marker.evaluate({"extra": each}) for each in active_extras
        ):
            continue
        if canonicalize_name(wanted.name) == canonicalize_name(name):
            yield from needs(name, wanted.extras)
        else:
            yield canonicalize_name(wanted.name)


def all_needs(name: str, extra: str) -> set[str]:
    """Return the names of all distributions that one with an extra needs here, directly or through others."""
    names = set(needs(name, [extra]))
    open_names = list(names)
    while open_names:
        more = set(needs(open_names.pop())) - names
        names |= more
        open_names += more
    return names
