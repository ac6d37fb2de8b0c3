"""Configuration of an image, read before it is run from the source that Mesos' containerizer will use.

That is the agent's --docker_registry: a directory of `docker save` archives, or a registry.
"""

import contextlib
import errno
import tarfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from isolator.host.control_ports import Denial
from isolator.images.login import Login
from isolator.images.reference import Reference
from isolator.images.registry import (
    DEFAULT_REGISTRY,
    MAX_JSON_BYTES,
    REGISTRY_S,
    Registry,
    check_platform,
    damaged,
)
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.wire.body import parsed


def read_config(
    image: str,
    *,
    registry: str,
    login: Login | None = None,
    timeout_s: float = REGISTRY_S,
    denied: Collection[Denial] = (),
) -> ImageConfig:
    """Return the image's labels, environment and commands.

    Args:
        image: Name of the image in the job.
        registry: The agent's --docker_registry: a directory, file://DIRECTORY, or https://HOST[:PORT].
        login: Login for the registry; None asks without one.
        timeout_s: Total seconds for a registry.
        denied: Destinations that the task must not reach; the image is not read from them either.

    Raises:
        Refused: The registry does not show the image to this login.
        NotFound: There is no such image, or none for this platform, or its registry refers to an address that
            is not allowed.
        Unavailable: The registry does not answer in time.
        Damaged: The data is not an image.
    """
    reference = Reference.of(image)
    if directory := directory_of(registry):
        return _read_archive(directory / f"{image}.tar", reference, image)
    opened = Registry(registry, reference, login=login, timeout_s=timeout_s, denied=denied)
    return config_of(opened.config(), image)


def directory_of(registry: str) -> Path | None:
    """Return the directory of archives that --docker_registry names; None if it names a registry."""
    directory = registry.removeprefix("file://")
    return Path(directory) if directory.startswith("/") else None


def registry_of(flags: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the source of this agent's images: MESOS_GPU_IMAGE_REGISTRY, else its --docker_registry."""
    return env.get("MESOS_GPU_IMAGE_REGISTRY") or flags.get("docker_registry") or DEFAULT_REGISTRY


def config_of(body: Any, image: str) -> ImageConfig:
    """Return `config` of an image's JSON; both layouts have it, and any of its fields may be null.

    Raises:
        Damaged: The JSON has another form.
    """
    try:
        config = body.get("config") or {}
        pairs = (str(text).partition("=") for text in config.get("Env") or ())
        return ImageConfig(
            labels={str(key): str(value) for key, value in (config.get("Labels") or {}).items()},
            env={name: value for name, _, value in pairs},
            entrypoint=_words(config.get("Entrypoint")),
            cmd=_words(config.get("Cmd")),
            user=str(config.get("User") or ""),
            directory=str(config.get("WorkingDir") or ""),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise damaged(f"the configuration of {image}", error) from error


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value or ()))


# --- archives


def _read_archive(path: Path, reference: Reference, image: str) -> ImageConfig:
    with archive(path, image) as tar:
        body = _archived(tar, reference, path)
        check_platform(body, image)
        return config_of(body, image)


@contextlib.contextmanager
def archive(path: Path, image: str) -> Iterator[tarfile.TarFile]:
    """Open an archive of `docker save`; errors of reading it become those of `read_config`."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except FileNotFoundError:
        raise NotFound(
            f"there is no image {image}: {path} does not exist on this agent",
            remedy=f"docker save -o {path} {image}",
        ) from None
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(str(path), repr(error)) from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR):  # by the image's name
            raise NotFound(
                f"there is no image {image}: {path}: {error.strerror}", remedy="check the name of the image"
            ) from error
        raise Unavailable(
            f"{path} cannot be read: {error.strerror}", remedy="check its permissions, and the disk"
        ) from error


def _archived(tar: tarfile.TarFile, reference: Reference, path: Path) -> Any:
    """Return the JSON with the configuration, by version 1's `repositories`, else by manifest.json."""
    # Mesos' puller asks for the repository alone first, then with the registry in front of it.
    try:
        repositories = load(tar, "repositories")
    except KeyError:
        repositories = {}
    tags = repositories.get(reference.repository) or repositories.get(reference.qualified) or {}
    if reference.reference in tags:
        return load(tar, f"{tags[reference.reference]}/json")
    return load(tar, manifest_in(tar, reference, path)["Config"])


def manifest_in(tar: tarfile.TarFile, reference: Reference, path: Path) -> Any:
    """Return the entry of an image in the manifest.json of an archive.

    Raises:
        NotFound: The archive has no such image.
    """
    try:
        manifests = load(tar, "manifest.json")
    except KeyError:
        manifests = []
    name = f"{reference.qualified}:{reference.reference}"
    for manifest in manifests:
        if name in (manifest.get("RepoTags") or ()):
            return manifest
    raise NotFound(f"{path} has no image {name}", remedy=f"docker save -o {path} {name}")


def load(tar: tarfile.TarFile, name: str) -> Any:
    """Return a JSON file of an archive.

    Raises:
        KeyError: There is no such file.
        ValueError: It is not JSON.
    """
    file: IO[bytes] | None = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return parsed(file.read(MAX_JSON_BYTES))
