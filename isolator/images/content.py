"""An image with its layers, from where its configuration is read, too: a registry, or an archive of `docker save`."""

import contextlib
import hashlib
import re
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from isolator.host.control_ports import Denial
from isolator.images.login import Login
from isolator.images.reference import Reference
from isolator.images.registry import MAX_LAYERS, Registry, check_platform
from isolator.images.source import archive, config_of, directory_of, load, manifest_in
from isolator.images.store import Layer
from isolator.images.unpacking import Readable
from mesos_gpu.model.jobs.image import ImageConfig

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SHORT: Final = 16  # hexadecimal digits that name where a layer is from


@dataclass(frozen=True, slots=True)
class Content:
    """An image: its configuration, and its layers, the lowest first."""

    config: ImageConfig
    layers: tuple[Layer, ...]


def content_of(
    image: str, *, registry: str, login: Login | None = None, denied: Collection[Denial] = ()
) -> Content:
    """Return an image whose layers are not fetched yet.

    A registry is asked for the manifest each time, with this login: only logins to which the registry shows the image
    get layers that the host has already.

    Args:
        image, registry, login, denied: As of `source.read_config`.

    Raises:
        MesosGpuError: As of `source.read_config`.
    """
    reference = Reference.of(image)
    if directory := directory_of(registry):
        return _of_archive(directory, reference, image)
    opened = Registry(registry, reference, login=login, denied=denied)
    config = config_of(opened.config(), image)
    layers = (
        Layer(_key(opened.host, each.digest), each.size, "", partial(opened.open_blob, each))
        for each in opened.manifest().layers
    )
    return Content(config, tuple(layers))


def _key(place: str, digest: str) -> str:
    """Return the name of a layer in stores. Layers of different registries are different ones: one that a tenant has
    could name layers of others by their digests, and would get them without having them."""
    return f"{hashlib.sha256(place.encode()).hexdigest()[:_SHORT]}-{digest.removeprefix('sha256:')}"


def _of_archive(directory: Path, reference: Reference, image: str) -> Content:
    path = directory / f"{image}.tar"
    with archive(path, image) as tar:
        manifest = manifest_in(tar, reference, path)
        body = load(tar, manifest["Config"])
        check_platform(body, image)
        digests, names = body["rootfs"]["diff_ids"], manifest["Layers"]
        if len(digests) != len(names) or len(names) > MAX_LAYERS:
            raise ValueError(f"{len(names)} layers with {len(digests)} digests")
        if wrong := [each for each in digests if not _DIGEST.fullmatch(each)]:
            raise ValueError(f"digest {wrong[0]!r}: only sha256 is taken")
        place = f"file://{directory}"
        layers = (
            Layer(
                _key(place, digest), tar.getmember(name).size, digest, partial(_layer_in, path, image, name)
            )
            for digest, name in zip(digests, names, strict=True)
        )
        return Content(config_of(body, image), tuple(layers))


@contextlib.contextmanager
def _layer_in(path: Path, image: str, name: str) -> Iterator[Readable]:
    with tarfile.open(path, "r:") as tar:
        file = tar.extractfile(name)
        if file is None:
            raise FileNotFoundError(2, f"{path} of {image} has no file {name}")
        yield file
