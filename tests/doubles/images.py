"""Docker image archives written without Docker, for agents whose --docker_registry is a directory.

The layout is that of `docker save` version 1.0 (Docker Image Specification v1.0.0), which Mesos' local puller
reads, with the manifest.json that newer versions of `docker load` need.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

_CREATED: Final = "1970-01-01T00:00:00Z"
_PIECE: Final = 1 << 20  # bytes of a layer that are read at once


class Link(str):
    """The target of a symbolic link."""

    __slots__ = ()


def layer(files: Mapping[str, "bytes | Link | None"]) -> bytes:
    """Return a layer with files of root, of mode 0755, by path; None as content makes a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.lstrip("/"))
            member.mode = 0o755
            data = b""
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, Link):
                member.type, member.linkname = tarfile.SYMTYPE, str(content)
            else:
                data = content
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def busybox_layer(busybox: Path, applets: Sequence[str]) -> bytes:
    """Return a layer with a root file system: busybox, and links to it named sh, cat and so on."""
    directories = ("bin", "dev", "etc", "mnt", "proc", "root", "sys", "tmp", "usr", "usr/local")
    return layer(
        {
            **dict.fromkeys(directories),
            "bin/busybox": busybox.read_bytes(),
            "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
            "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
            **{f"bin/{applet}": Link("busybox") for applet in applets},
        }
    )


def save(
    directory: Path, name: str, layers: Sequence[bytes | Path], config: Mapping[str, object] | None = None
) -> Path:
    """Write `<directory>/<name>.tar`.

    Args:
        directory: Directory that --docker_registry names.
        name: Name of the image in a job, such as "registry:5000/team/app:1"; slashes become directories.
        layers: Layers from the bottom to the top: content of a tar file, or the path of a large one.
        config: Fields of Docker's image configuration, such as Env, Entrypoint, Cmd, WorkingDir, User and Labels.
    """
    path = directory / f"{name}.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    repository, tag = _split(name)
    part = path.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        top, files = _write_layers(tar, layers, config or {})
        _add(tar, "repositories", _json({repository: {tag: top}}))
        whole = {
            "architecture": "amd64",
            "os": "linux",
            "created": _CREATED,
            "config": config or {},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{_digest(data)}" for data in layers],
            },
        }
        _add(tar, f"{top}.json", _json(whole))
        manifest = {"Config": f"{top}.json", "RepoTags": [f"{repository}:{tag}"], "Layers": files}
        _add(tar, "manifest.json", _json([manifest]))
    part.rename(path)
    return path


def _split(name: str) -> tuple[str, str]:
    """Split a name into repository and tag; a colon before the last slash belongs to a port."""
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return head + slash + last, tag or "latest"


def _write_layers(
    tar: tarfile.TarFile, layers: Sequence[bytes | Path], config: Mapping[str, object]
) -> tuple[str, list[str]]:
    """Write layers to an archive; return the id of the top layer, and the names of the files of layers."""
    parent, files = "", []
    for data in layers:
        # The id depends on the configuration: Mesos' store keeps the JSON file of a layer by the layer's id, and would
        # use the configuration of an earlier image with equal files.
        ident = _digest(data, _json([parent, config]))
        about = {
            "id": ident,
            "os": "linux",
            "architecture": "amd64",
            "created": _CREATED,
            "config": config,
            **({"parent": parent} if parent else {}),
        }
        _add(tar, f"{ident}/VERSION", b"1.0")
        _add(tar, f"{ident}/json", _json(about))
        _add(tar, f"{ident}/layer.tar", data)
        files.append(f"{ident}/layer.tar")
        parent = ident
    return parent, files


def _digest(data: bytes | Path, before: bytes = b"") -> str:
    """Return the SHA-256 of some bytes and of data that follow them, in hexadecimal digits."""
    digest = hashlib.sha256(before)
    with _opened(data) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _opened(data: bytes | Path) -> BinaryIO:
    return io.BytesIO(data) if isinstance(data, bytes) else data.open("rb")


def _add(tar: tarfile.TarFile, name: str, data: bytes | Path) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data) if isinstance(data, bytes) else data.stat().st_size
    with _opened(data) as file:
        tar.addfile(member, file)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
