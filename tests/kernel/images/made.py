"""Layers and images made by hand, and a real registry that serves them."""

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests

from isolator.images.registry import platform
from mesos_gpu.local.own_ports import free_port
from tests.conftest import wait_until

KIND = "application/vnd.docker"


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


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Run a registry; give its address, http://HOST:PORT."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian: docker-registry)")
    address = f"127.0.0.1:{free_port()}"
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "blobs")}},
        "http": {"addr": address},
    }
    (directory / "registry.yml").write_text(json.dumps(config))
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen([program, "serve", directory / "registry.yml"], stdout=log, stderr=log) as process,
    ):
        try:
            wait_until("the registry", lambda: b"listening on" in (directory / "log").read_bytes())
            yield f"http://{address}"
        finally:
            process.terminate()


def push(
    registry: str,
    name: str,
    layers: Sequence[bytes],
    config: Mapping[str, Any],
    *,
    architecture: str = "",
    oci: bool = False,
) -> None:
    """Push an image, NAME:TAG; its layers are sent as they are."""
    repository, _, tag = name.partition(":")
    body = {
        "architecture": architecture or platform()[1],
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    kinds = (
        ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json",
         "application/vnd.oci.image.layer.v1.tar+zstd")
        if oci
        else (f"{KIND}.distribution.manifest.v2+json", f"{KIND}.container.image.v1+json",
              f"{KIND}.image.rootfs.diff.tar.gzip")
    )  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": kinds[0],
        "config": {"mediaType": kinds[1], **_push_blob(registry, repository, json.dumps(body).encode())},
        "layers": [{"mediaType": kinds[2], **_push_blob(registry, repository, each)} for each in layers],
    }
    url = f"{registry}/v2/{repository}/manifests/{tag or 'latest'}"
    answer = requests.put(url, data=json.dumps(manifest).encode(), headers={"Content-Type": kinds[0]})
    assert answer.ok, answer.text


def _push_blob(registry: str, repository: str, data: bytes) -> dict[str, Any]:
    place = requests.post(f"{registry}/v2/{repository}/blobs/uploads/").headers["Location"]
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    requests.put(place, params={"digest": digest}, data=data).raise_for_status()
    return {"digest": digest, "size": len(data)}


def blob_of(directory: Path, data: bytes) -> Path:
    """Return the file in which a registry that serves from a directory keeps a blob."""
    digest = hashlib.sha256(data).hexdigest()
    return directory / "blobs/docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"
