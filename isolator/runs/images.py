"""What an image says of itself, before it is run: read where Mesos' containerizer will get it from.

That is the agent's --docker_registry: a directory of `docker save` archives, or a registry with Docker's HTTP API
V2 (OCI Distribution Specification). Lean: the executor imports it, and http.client only when a registry is asked.
"""

import hashlib
import re
import tarfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from isolator.agent.http import HttpConnection
from isolator.agent.tls import AgentTls
from isolator.host.control_ports import Denial
from mesos_gpu.errors import Damaged, NotFound, Unavailable
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.wire.body import parsed

if TYPE_CHECKING:
    from http.client import HTTPResponse

DEFAULT_REGISTRY: Final = "https://registry-1.docker.io"  # of --docker_registry
AGENT_S: Final = 10.0
REGISTRY_S: Final = 30.0  # for all of an image's requests together
MOST_BYTES: Final = 8 << 20  # of a manifest or configuration: they are a few KiB
_LISTS: Final = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_MANIFESTS: Final = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)
#: OCI Distribution Specification, "Pulling manifests"; the host as in Docker's grammar of references.
_NAME: Final = re.compile(
    r"(?P<repository>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's name in its parts. `reference`: its tag or digest. `host`: empty where the name has none."""

    host: str
    repository: str
    reference: str

    @classmethod
    def of(cls, image: str) -> "Reference":
        """Parse an image's name as Docker does.

        The part before the first slash is a host if it has a dot or colon, or is localhost.

        Raises:
            NotFound: It is no name of an image.
        """
        first, slash, rest = image.partition("/")
        host = first if slash and (set(".:") & set(first) or first == "localhost") else ""
        name = _NAME.fullmatch(rest if host else image)
        if not name or (host and not _HOST.fullmatch(host)):
            raise NotFound(
                f"{image!r} is not the name of an image", remedy="name it as [host/]repository[:tag]"
            )
        return cls(host, name["repository"], name["digest"] or name["tag"] or "latest")


def read_config(
    image: str, *, registry: str, timeout_s: float = REGISTRY_S, denied: Collection[Denial] = ()
) -> ImageConfig:
    """The image's labels, environment and commands.

    Args:
        image: As the job names it.
        registry: The agent's --docker_registry: a directory, file://DIRECTORY, or https://HOST[:PORT].
        timeout_s: For a registry, in all.
        denied: Destinations that the task must not reach; the image is not read from them either.

    Raises:
        NotFound: There is no such image, or its registry refers to where none may.
        Unavailable: The registry does not answer in time, or wants a login.
        Damaged: What is there is not an image.
    """
    reference = Reference.of(image)
    directory = registry.removeprefix("file://")
    if directory.startswith("/"):
        return _read_archive(Path(directory) / f"{image}.tar", reference, image)
    return _config(_Registry(registry, reference, timeout_s, denied).config(), image)


def flags_of(
    endpoint: str,
    *,
    prefix: str = "",
    authorization: Mapping[str, str] | None = None,
    tls: AgentTls | None = None,
) -> dict[str, str]:
    """The flags that an agent runs with, by name without dashes; those that are not set are not there.

    Args:
        endpoint: HOST:PORT of the agent.
        prefix: Of an agent that shares its process with others: /slave(N).
        authorization: The header, for an agent that wants one.
        tls: For an agent that speaks it.

    Raises:
        Unavailable: The agent does not answer, or does not tell.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json", **(authorization or {})}
    connection = HttpConnection(endpoint, AGENT_S, tls)
    try:
        response = connection.post(f"{prefix}/api/v1", b'{"type": "GET_FLAGS"}', headers)
        text = response.read()
        if response.status != 200:
            said = text[:200].decode(errors="replace")
            raise Unavailable(
                f"the agent {endpoint} does not tell its flags: {response.status} {said}",
                remedy="allow the view_flags action to executors in its ACLs; if it asks for credentials, name their "
                "file by MESOS_GPU_AGENT_CREDENTIALS",
            )
        flags = parsed(text)["get_flags"]["flags"]
        return {str(flag["name"]): str(flag["value"]) for flag in flags if "value" in flag}
    except OSError as error:
        raise Unavailable(
            f"the agent {endpoint} does not answer: {error}", remedy="see that it runs, and its log"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"what answers at {endpoint} is not a Mesos agent: {error!r}", remedy="name the agent's address"
        ) from error
    finally:
        connection.close()


def registry_of(flags: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Where this agent gets images from: MESOS_GPU_IMAGE_REGISTRY, else its --docker_registry."""
    return env.get("MESOS_GPU_IMAGE_REGISTRY") or flags.get("docker_registry") or DEFAULT_REGISTRY


def _config(body: Any, image: str) -> ImageConfig:
    """`config` of an image's JSON; both layouts have it, and any of its fields may be null."""
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
        raise _damaged(f"the configuration of {image}", error) from error


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value or ()))


def _damaged(what: str, error: object) -> Damaged:
    return Damaged(f"{what} is not that of an image: {error}", remedy="push or save the image again")


# --- archives


def _read_archive(path: Path, reference: Reference, image: str) -> ImageConfig:
    try:
        with tarfile.open(path, "r:") as tar:
            return _config(_archived(tar, reference, path), image)
    except FileNotFoundError:
        raise NotFound(
            f"there is no image {image}: {path} does not exist on this agent",
            remedy=f"docker save -o {path} {image}",
        ) from None
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(str(path), repr(error)) from error
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read: {error.strerror}", remedy="see its rights, and the disk"
        ) from error


def _archived(tar: tarfile.TarFile, reference: Reference, path: Path) -> Any:
    """The JSON with the configuration, by version 1's `repositories`, else by manifest.json."""
    # Mesos' puller asks for the repository alone first, then with the registry in front of it.
    qualified = "/".join(filter(None, (reference.host, reference.repository)))
    try:
        repositories = _load(tar, "repositories")
    except KeyError:
        repositories = {}
    tags = repositories.get(reference.repository) or repositories.get(qualified) or {}
    if reference.reference in tags:
        return _load(tar, f"{tags[reference.reference]}/json")
    try:
        manifests = _load(tar, "manifest.json")
    except KeyError:
        manifests = []
    name = f"{qualified}:{reference.reference}"
    for manifest in manifests:
        if name in (manifest.get("RepoTags") or ()):
            return _load(tar, manifest["Config"])
    raise NotFound(f"{path} has no image {name}", remedy=f"docker save -o {path} {name}")


def _load(tar: tarfile.TarFile, name: str) -> Any:
    file: IO[bytes] | None = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return parsed(file.read(MOST_BYTES))


# --- registries


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    challenge: str
    body: bytes


class _Registry:
    """The requests for one image. Nobody logs in: private images want a mirror that the agent may read."""

    def __init__(
        self, registry: str, reference: Reference, timeout_s: float, denied: Collection[Denial]
    ) -> None:
        from isolator.runs.registry_reach import Reach

        self._reference = reference
        self._base = _base(registry, reference)
        self._reach = Reach(self._base, denied, trusted=self._base == _configured(registry))
        self._name = reference.repository
        if self._base.endswith("docker.io") and "/" not in self._name:
            self._name = f"library/{self._name}"
        self._deadline = time.monotonic() + timeout_s
        self._token = ""

    def config(self) -> Any:
        """The configuration, by way of the manifest, and of the list of platforms where there is one."""
        manifest = self._get(f"manifests/{self._reference.reference}")
        if "manifests" in manifest:
            manifest = self._get(f"manifests/{self._of_platform(manifest)}")
        try:
            return self._get(f"blobs/{manifest['config']['digest']}")
        except (KeyError, TypeError) as error:
            raise _damaged(f"the manifest of {self._base}/{self._name}", repr(error)) from error

    def _of_platform(self, index: Any) -> str:
        try:
            for entry in index["manifests"]:
                platform = entry.get("platform") or {}
                if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
                    return str(entry["digest"])
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(f"the index of {self._base}/{self._name}", repr(error)) from error
        raise NotFound(f"{self._name} is not made for linux/amd64", remedy="build it for linux/amd64")

    def _get(self, path: str) -> Any:
        url = f"{self._base}/v2/{self._name}/{path}"
        answer = self._ask(url, self._token)
        if answer.status == 401 and not self._token:
            self._token = self._new_token(answer.challenge)
            answer = self._ask(url, self._token)
        what = f"{self._name}:{self._reference.reference} at {self._base}"
        if answer.status in (401, 403):
            raise Unavailable(
                f"the registry does not show {what} to everybody: {answer.status}",
                remedy="see the name, or copy the image to a registry without a login",
            )
        if answer.status == 404:
            raise NotFound(f"there is no image {what}", remedy="see its name and tag")
        if answer.status != 200:
            raise Unavailable(f"the registry answers {answer.status} for {what}", remedy="try again later")
        kind, _, digest = path.rpartition("/")[2].partition(":")
        if kind == "sha256" and hashlib.sha256(answer.body).hexdigest() != digest:
            raise _damaged(url, "it has another digest")
        return _object(answer.body, url)

    def _new_token(self, challenge: str) -> str:
        """A token for everybody (Docker Registry v2 authentication, "Token Authentication Specification")."""
        scheme, _, rest = challenge.partition(" ")
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if scheme.lower() != "bearer" or "realm" not in fields:
            return ""
        from urllib.parse import urlencode

        asked = {key: fields[key] for key in ("service", "scope") if key in fields}
        url = f"{fields['realm']}?{urlencode(asked)}"
        answer = self._ask(url, "")
        if answer.status != 200:
            return ""
        body = _object(answer.body, url)
        return str(body.get("token") or body.get("access_token") or "")

    def _ask(self, url: str, token: str) -> "_Answer":
        """Follows redirects, without the token: they lead to other hosts."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        if not url.startswith(("https://", "http://")):
            raise Unavailable(f"the registry refers to {url}", remedy="see what --docker_registry names")
        request = Request(url, headers={"Accept": ", ".join((*_MANIFESTS, *_LISTS, "*/*"))})
        if token:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with self._reach.send(request, self._left_s()) as response:
                return _Answer(response.status, "", self._read(response, url))
        except HTTPError as error:
            with error:
                return _Answer(error.code, error.headers.get("WWW-Authenticate", ""), b"")
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"the registry {self._base} cannot be read: {url}: {error}",
                remedy="see that this host reaches it; MESOS_GPU_IMAGE_REGISTRY names another",
            ) from error

    def _read(self, response: "HTTPResponse", url: str) -> bytes:
        body = bytearray()
        while part := response.read1(1 << 16):
            body += part
            self._left_s()
            if len(body) > MOST_BYTES:
                raise _damaged(url, f"it is longer than {MOST_BYTES} bytes")
        return bytes(body)

    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it takes too long")
        return left_s


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        value = parsed(body)
    except ValueError as error:
        raise _damaged(url, error) from error
    if not isinstance(value, dict):
        raise _damaged(url, "no JSON object")
    return value


def _base(registry: str, reference: Reference) -> str:
    """The registry's address. A host in the image's name wins; it is spoken to by https, unless --docker_registry
    names the same host otherwise."""
    configured = _configured(registry)
    if not reference.host or configured.partition("://")[2] == reference.host:
        return configured
    if reference.host in ("docker.io", "index.docker.io"):
        return DEFAULT_REGISTRY
    return f"https://{reference.host}"


def _configured(registry: str) -> str:
    return (registry if "://" in registry else f"https://{registry}").rstrip("/")
