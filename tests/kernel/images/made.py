"""Layers made by hand."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    """Return an entry of a layer, of mode 0755 if no other is given."""
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, 0o755
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def tar(*entries: "tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]") -> bytes:
    """Return a layer of entries, in this order; of files with what is in them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in entries:
            member, data = each if isinstance(each, tuple) else (each, b"")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def file(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return a file of a layer."""
    return entry(name, **fields), data


def blob_of(directory: Path, data: bytes) -> Path:
    """Return the file in which a registry that serves from a directory keeps a blob."""
    digest = hashlib.sha256(data).hexdigest()
    return directory / "data/docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"
