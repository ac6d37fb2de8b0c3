"""Image with its layers, from a registry, or from an archive of `docker save`."""

import contextlib
import errno
import hashlib
import re
import tarfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from isolator.host.control_ports import Denial
from isolator.images.login import Login
from isolator.images.reference import Reference
from isolator.images.registry import MAX_LAYERS, Descriptor, Registry, check_platform
from isolator.images.source import archive, config_of, directory_of, load, manifest_in
from isolator.images.store import Layer
from isolator.images.unpacking import Readable
from mesos_gpu.model.jobs.image import ImageConfig

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SHORT: Final = 16  # number of hexadecimal digits that stand for the origin of a layer


@dataclass(frozen=True, slots=True)
class Content:
    """An image.

    Attributes:
        config: Configuration of the image.
        layers: Layers, the lowest first.
        see_layers: Function that checks that the registry gives each layer to the login of the image, before
            a layer that the host had already is used; layers that were fetched are not checked. It takes a
            function that returns whether to give up, and raises `MesosGpuError` as `Registry.see_blob`, and
            InterruptedError.
    """

    config: ImageConfig
    layers: tuple[Layer, ...]
    see_layers: Callable[[Callable[[], bool]], None]


def content_of(
    image: str, *, registry: str, login: Login | None = None, denied: Collection[Denial] = ()
) -> Content:
    """Return an image whose layers are not fetched yet.

    A registry is asked for the manifest each time, with this login, and by `Content.see_layers` for the
    layers that the host has already: only logins to which the registry shows both get those layers.

    Args:
        image, registry, login, denied: See `source.read_config`.

    Raises:
        MesosGpuError: As for `source.read_config`.
    """
    reference = Reference.of(image)
    if directory := directory_of(registry):
        return _archive_content(directory, reference, image)
    opened = Registry(registry, reference, login=login, denied=denied)
    config = config_of(opened.config(), image)
    described, fetched = opened.manifest().layers, set[Descriptor]()
    layers = (
        Layer(_key(opened.host, each.digest), each.size, "", partial(_fetch, opened, each, fetched))
        for each in described
    )
    return Content(config, tuple(layers), partial(_check_access, opened, described, fetched))


@contextlib.contextmanager
def _fetch(registry: Registry, descriptor: Descriptor, fetched: set[Descriptor]) -> Iterator[Readable]:
    with registry.open_blob(descriptor) as blob:
        fetched.add(descriptor)
        yield blob


def _check_access(
    registry: Registry,
    described: Collection[Descriptor],
    fetched: Collection[Descriptor],
    is_aborted: Callable[[], bool],
) -> None:
    """Check that the registry gives this login also the blobs that were not fetched, as other jobs have stored them."""
    for descriptor in dict.fromkeys(described):
        if is_aborted():
            raise InterruptedError(errno.EINTR, "killed before it was started")
        if descriptor not in fetched:
            registry.see_blob(descriptor)


def _key(place: str, digest: str) -> str:
    """Return the name of a layer in stores, which includes its registry.

    Otherwise a tenant with a registry could name layers of other registries by their digests, and get them.
    """
    return f"{hashlib.sha256(place.encode()).hexdigest()[:_SHORT]}-{digest.removeprefix('sha256:')}"


def _archive_content(directory: Path, reference: Reference, image: str) -> Content:
    path = directory / f"{image}.tar"
    with archive(path, image) as tar:
        manifest = manifest_in(tar, reference, path)
        body = load(tar, manifest["Config"])
        check_platform(body, image)
        digests, names = body["rootfs"]["diff_ids"], manifest["Layers"]
        if len(digests) != len(names) or len(names) > MAX_LAYERS:
            raise ValueError(f"{len(names)} layers with {len(digests)} digests")
        if wrong := [layer_digest for layer_digest in digests if not _DIGEST.fullmatch(layer_digest)]:
            raise ValueError(f"digest {wrong[0]!r}: only sha256 is supported")
        place = f"file://{directory}"
        layers = (
            Layer(
                _key(place, digest), tar.getmember(name).size, digest, partial(_layer_in, path, image, name)
            )
            for digest, name in zip(digests, names, strict=True)
        )
        return Content(config_of(body, image), tuple(layers), lambda _: None)  # archives may be used by all


@contextlib.contextmanager
def _layer_in(path: Path, image: str, name: str) -> Iterator[Readable]:
    with tarfile.open(path, "r:") as tar:
        file = tar.extractfile(name)
        if file is None:
            raise FileNotFoundError(2, f"{path} of {image} has no file {name}")
        yield file
