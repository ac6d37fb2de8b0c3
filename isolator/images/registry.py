"""Client of registries for one image: its manifest, its configuration and its layers.

Docker's HTTP API V2 (OCI Distribution Specification), with basic and token authentication ("Token Authentication
Specification", "OAuth2 Token Authentication"). Lean: http.client is imported only when a registry is asked.
"""

import contextlib
import hashlib
import io
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from isolator.host.control_ports import Denial
from isolator.images.login import Login
from isolator.images.reference import HUB, Reference, registry_host
from mesos_gpu.errors import Damaged, NotFound, Unavailable
from mesos_gpu.wire.body import parsed

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import Request

DEFAULT_REGISTRY: Final = "https://registry-1.docker.io"  # default of --docker_registry
REGISTRY_S: Final = 30.0  # time limit of all requests for manifest and configuration together
STALL_S: Final = 60.0  # time limit of one read of a layer, and of its first byte
MIN_BYTES_PER_S: Final = 64 << 10  # least speed of a layer's download: slower registries are given up
MAX_JSON_BYTES: Final = 8 << 20  # for a manifest or configuration, which are a few KiB
MAX_BLOB_BYTES: Final = 1 << 40
MAX_LAYERS: Final = 512
_LISTS: Final = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_MANIFESTS: Final = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}  # GOARCH names by uname(2)
_CLIENT: Final = "mesos-gpu"  # OAuth2 client id


class Refused(NotFound):
    """A registry does not show an image to this login, or not without a login."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob of a registry (OCI Image Specification, "Content Descriptors").

    Attributes:
        digest: "sha256:" with 64 hexadecimal digits.
        size: Length in bytes.
        media_type: Media type of the blob; empty if the manifest has none.
    """

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parts of an image for the platform of this host.

    Attributes:
        digest: Digest of the manifest itself.
        config: Blob of the configuration.
        layers: Layers, the lowest first.
    """

    digest: str
    config: Descriptor
    layers: tuple[Descriptor, ...]


def platform() -> tuple[str, str]:
    """Return operating system and architecture of this host, as images name them."""
    machine = os.uname().machine
    return "linux", _ARCHITECTURES.get(machine, machine)


class Registry:
    """Requests for one image.

    Args:
        registry: The agent's --docker_registry: http[s]://HOST[:PORT], or HOST[:PORT].
        reference: Name of the image; its host, if it has one, is asked instead.
        login: Login for the host that is asked; None asks without one.
        timeout_s: Time limit of the requests for manifest and configuration together.
        denied: Destinations that the task must not reach; no image is read from them either.
    """

    def __init__(
        self,
        registry: str,
        reference: Reference,
        *,
        login: Login | None = None,
        timeout_s: float = REGISTRY_S,
        denied: Collection[Denial] = (),
    ) -> None:
        from isolator.images.reach import Reach

        self._reference, self._login = reference, login
        self._base = _base(registry, reference)
        self._reach = Reach(self._base, denied, trusted=self._base == _configured(registry))
        self._name = reference.repository
        if registry_host(self._base.partition("://")[2]) == HUB and "/" not in self._name:
            self._name = f"library/{self._name}"
        self._timer = _Timer(timeout_s)
        self._authorization = ""  # header of requests to the registry itself
        self._manifest: Manifest | None = None

    @property
    def host(self) -> str:
        """HOST[:PORT] of the registry that is asked. Access to an image of one registry proves no right to
        blobs of another.
        """
        return registry_host(self._base.partition("://")[2])

    @property
    def what(self) -> str:
        """The image and its registry, for messages."""
        mark = "@" if _DIGEST.fullmatch(self._reference.reference) else ":"
        return f"{self._name}{mark}{self._reference.reference} at {self._base}"

    def manifest(self) -> Manifest:
        """Return the manifest for this host's platform, which is read from the registry once.

        Raises:
            Refused: The registry does not show the image to this login.
            NotFound: There is no such image, or none for this platform, or the registry refers to an address
                that is not allowed.
            Unavailable: The registry does not answer in time.
            Damaged: The answer is not a manifest.
        """
        if self._manifest is None:
            if ":" in self._reference.reference and not _DIGEST.fullmatch(self._reference.reference):
                raise NotFound(
                    f"{self.what}: only sha256 digests are supported", remedy="name the image by its tag"
                )
            body = self._get(f"manifests/{self._reference.reference}")
            if "manifests" in body.value:
                body = self._get(f"manifests/{self._platform_digest(body.value)}")
            self._manifest = self._parsed(body)
        return self._manifest

    def config(self) -> dict[str, Any]:
        """Return the configuration of the image, as JSON.

        Raises:
            NotFound: As for `manifest`; or the image is made for another platform.
            Unavailable, Damaged: As for `manifest`.
        """
        descriptor = self.manifest().config
        if descriptor.size > MAX_JSON_BYTES:
            raise damaged(f"the configuration of {self.what}", f"it is longer than {MAX_JSON_BYTES} bytes")
        value = self._get(f"blobs/{descriptor.digest}").value
        check_platform(value, self._name)
        return value

    @contextlib.contextmanager
    def open_blob(self, descriptor: Descriptor) -> Iterator["Blob"]:
        """Open a blob as a stream, for the body of a with statement.

        At its end, size and digest are verified, including what was not read; results may be used only after
        that.

        Args:
            descriptor: Blob of this image.

        Raises:
            Refused, NotFound: The registry does not give it.
            Unavailable: The registry does not answer in time, or breaks off.
            Damaged: The blob has another size or digest.
        """
        timer = _Timer(STALL_S + descriptor.size / MIN_BYTES_PER_S, STALL_S)
        url = self._url(f"blobs/{descriptor.digest}")
        with self._answer(url, timer) as response:
            blob = Blob(response, descriptor, url, timer)
            yield blob
            blob.verify()

    def see_blob(self, descriptor: Descriptor) -> None:
        """Check that the registry gives a blob to this login, without reading it.

        A manifest proves no right to the layers that it names: it may name layers of other repositories.

        Args:
            descriptor: Blob of this image.

        Raises:
            Refused, NotFound: The registry does not give it.
            Unavailable: The registry does not answer in time.
        """
        with self._answer(self._url(f"blobs/{descriptor.digest}"), _Timer(REGISTRY_S), "HEAD"):
            pass

    def _platform_digest(self, index: Any) -> str:
        wanted = platform()
        others: set[str] = set()
        try:
            for entry in index["manifests"]:
                of = entry.get("platform") or {}
                if (of.get("os"), of.get("architecture")) == wanted:
                    return _digest(entry["digest"])
                others.add(f"{of.get('os')}/{of.get('architecture')}")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise damaged(f"the index of {self.what}", repr(error)) from error
        raise _other_platform_error(self._name, ", ".join(sorted(others - {"unknown/unknown", "None/None"})))

    def _parsed(self, body: "_Json") -> Manifest:
        try:
            layers = tuple(map(_descriptor, body.value["layers"]))
            if len(layers) > MAX_LAYERS:
                raise ValueError(f"{len(layers)} layers, but at most {MAX_LAYERS} are allowed")
            return Manifest(body.digest, _descriptor(body.value["config"]), layers)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(f"the manifest of {self.what}", repr(error)) from error

    # --- requests

    def _url(self, path: str) -> str:
        return f"{self._base}/v2/{self._name}/{path}"

    def _get(self, path: str) -> "_Json":
        url = self._url(path)
        with self._answer(url, self._timer) as response:
            text = self._read(response, url, self._timer)
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        name = path.rpartition("/")[2]
        if _DIGEST.fullmatch(name) and name != digest:
            raise damaged(url, "it has another digest")
        return _Json(_object(text, url), digest)

    @contextlib.contextmanager
    def _answer(self, url: str, timer: "_Timer", method: str = "GET") -> Iterator["HTTPResponse"]:
        """Give the answer of the registry itself, with the authorization that it asks for."""
        status, challenges, response = self._ask(self._request(url, method), timer)
        if status == 401 and (authorization := self._authorize(challenges, timer)):
            self._authorization = authorization
            status, _, response = self._ask(self._request(url, method), timer)
        if response is None:
            raise self._failure(status, url)
        with response:
            yield response

    def _failure(self, status: int, url: str) -> NotFound | Unavailable:
        what, host = self.what, self._base.partition("://")[2]
        above, _, name = url.rpartition("/")
        kind = "image"
        if above.endswith("/blobs"):
            kind, what = "layer or configuration", f"{name} of {what}"
        if status in (401, 403) and self._login is not None:
            return Refused(
                f"the registry does not show {what} to the login of the image secret: {status}",
                remedy=f"check the login for {host} in that secret, its rights in the registry, and the image's name",
            )
        if status in (401, 403):
            return Refused(
                f"the registry does not show {what} without a login: {status}",
                remedy=f"check the name; use a secret with a login for {host} as the job's image_secret",
            )
        if status == 404:
            return NotFound(
                f"there is no {kind} {what}", remedy="check its name and tag, and its image_secret"
            )
        return Unavailable(f"the registry answers {status} for {what}", remedy="try again later")

    def _request(self, url: str, method: str) -> "Request":
        from urllib.request import Request

        accept = ", ".join((*_MANIFESTS, *_LISTS, "*/*"))
        request = Request(url, headers={"Accept": accept}, method=method)
        if self._authorization:  # redirects lead to other hosts, and do not get it
            request.add_unredirected_header("Authorization", self._authorization)
        return request

    def _ask(self, request: "Request", timer: "_Timer") -> "tuple[int, list[str], HTTPResponse | None]":
        """Return status, challenges, and the answer if it is one of success; follow redirects."""
        from http.client import HTTPException, InvalidURL
        from urllib.error import HTTPError

        if not request.full_url.startswith(("https://", "http://")):
            raise Unavailable(f"the registry refers to {request.full_url}", remedy="check --docker_registry")
        try:
            response = self._reach.send(request, timer.left_s())
        except HTTPError as error:
            with error:
                return error.code, error.headers.get_all("WWW-Authenticate") or [], None
        except (
            InvalidURL,
            ValueError,
            OverflowError,
        ) as error:  # of this URL, or of one that it redirects to
            raise self._refers_to(request.full_url, error) from error
        except (OSError, HTTPException) as error:
            raise self._unreadable(request.full_url, error) from error
        if response.status != 200:
            response.close()
            return response.status, [], None
        return response.status, [], response

    def _read(self, response: "HTTPResponse", url: str, timer: "_Timer") -> bytes:
        from http.client import HTTPException

        body, length = bytearray(), response.length
        try:
            while part := response.read1(1 << 16):
                body += part
                timer.left_s()
                if len(body) > MAX_JSON_BYTES:
                    raise damaged(url, f"it is longer than {MAX_JSON_BYTES} bytes")
        except (OSError, HTTPException) as error:
            raise self._unreadable(url, error) from error
        if length is not None and len(body) < length:
            raise self._unreadable(url, f"it broke off after {len(body)} of {length} bytes")
        return bytes(body)

    def _unreadable(self, url: str, error: object) -> Unavailable:
        return Unavailable(
            f"the registry {self._base} cannot be read: {url}: {error}",
            remedy="check that this host reaches it; MESOS_GPU_IMAGE_REGISTRY selects another",
        )

    def _refers_to(self, url: str, error: object) -> NotFound:
        return NotFound(
            f"the registry {self._base} refers to {url}, which is not a valid address: {error}",
            remedy="check the name of the image, or use an image of another registry",
        )

    # --- authorization

    def _authorize(self, challenges: list[str], timer: "_Timer") -> str:
        """Return the header that answers the challenges of a registry; empty if no login helps."""
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            if scheme.lower() == "bearer" and "realm" in fields:
                token = self._new_token(fields, timer)
                return f"Bearer {token}" if token else ""
            if scheme.lower() == "basic" and self._login is not None and not self._login.identity_token:
                return self._login.basic()
        return ""

    def _new_token(self, fields: Mapping[str, str], timer: "_Timer") -> str:
        from urllib.parse import urlencode
        from urllib.request import Request

        login, realm = self._login, fields["realm"]
        asked = {key: fields[key] for key in ("service", "scope") if key in fields}
        self._check_realm(realm)
        if login is not None and login.identity_token:
            grant = {"grant_type": "refresh_token", "refresh_token": login.identity_token}
            request = Request(realm, urlencode({**grant, "client_id": _CLIENT, **asked}).encode())
        else:
            request = Request(f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}")
            if login is not None:
                request.add_unredirected_header("Authorization", login.basic())
        status, _, response = self._ask(request, timer)
        if response is None:
            if status >= 500 or status == 429:
                raise Unavailable(f"the token service {realm} answers {status}", remedy="try again later")
            return ""
        with response:
            body = _object(self._read(response, realm, timer), realm)
        token = str(body.get("token") or body.get("access_token") or "")
        return token if token.isascii() and token.isprintable() else ""

    def _check_realm(self, realm: str) -> None:
        """Check that the realm is a URL, and that a login is sent by https, or to the host of a registry
        without https.

        Raises:
            Refused: The login would be sent elsewhere.
            NotFound: The realm is not a URL.
        """
        from urllib.parse import urlsplit

        own = urlsplit(self._base)
        try:
            parts = urlsplit(realm)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError("not an http or https URL with a host")
        except ValueError as error:
            raise self._refers_to(realm, error) from error
        is_own_host = own.scheme == "http" and parts.hostname == own.hostname
        if self._login is None or parts.scheme == "https" or is_own_host:
            return
        raise Refused(
            f"the registry {self._base} wants the login to be sent to {realm}, unencrypted or to another host",
            remedy="use a registry whose token service has https",
        )


class Blob(io.RawIOBase):
    """Bytes of a blob as they arrive."""

    def __init__(self, response: "HTTPResponse", descriptor: Descriptor, url: str, timer: "_Timer") -> None:
        self._response, self._descriptor, self._url, self._timer = response, descriptor, url, timer
        self._hash, self._seen = hashlib.sha256(), 0

    def readable(self) -> bool:
        """Return True, as `io.RawIOBase` asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes, as `io.RawIOBase.readinto`.

        Raises:
            Unavailable: The registry stopped sending.
            Damaged: The blob is longer than its descriptor says.
        """
        from http.client import HTTPException

        try:
            self._timer.left_s()
            data = self._response.read1(len(buffer)) if len(buffer) else b""
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{self._url} cannot be read: {error}", remedy="try again later") from error
        self._seen += len(data)
        if self._seen > self._descriptor.size:
            raise damaged(self._url, f"it is longer than {self._descriptor.size} bytes")
        self._hash.update(data)
        buffer[: len(data)] = data
        return len(data)

    def verify(self) -> None:
        """Read what is left, and compare size and digest.

        Raises:
            Unavailable: The registry broke off, or stopped sending.
            Damaged: The blob has another size or digest.
        """
        part = bytearray(1 << 16)
        while self.readinto(part):
            pass
        if self._seen < self._descriptor.size:
            raise Unavailable(
                f"{self._url} broke off after {self._seen} of {self._descriptor.size} bytes",
                remedy="try again later",
            )
        if f"sha256:{self._hash.hexdigest()}" != self._descriptor.digest:
            raise damaged(self._url, "it has another digest")


@dataclass(frozen=True, slots=True)
class _Json:
    value: dict[str, Any]
    digest: str


class _Timer:
    """Time limit in seconds, of which each step may take `step_s` at most."""

    def __init__(self, limit_s: float, step_s: float = float("inf")) -> None:
        self._deadline, self._step_s = time.monotonic() + limit_s, step_s

    def left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it takes too long")
        return min(left_s, self._step_s)


def damaged(what: str, error: object) -> Damaged:
    """Return the error for a file or an answer that is not the expected part of an image.

    Args:
        what: The file or URL, in words.
    """
    return Damaged(f"{what} is not that of an image: {error}", remedy="push or save the image again")


def check_platform(config: Mapping[str, Any], image: str) -> None:
    """Check that a configuration is for this host's platform, if it names one.

    Raises:
        NotFound: It is for another platform.
    """
    made_for = (config.get("os") or platform()[0], config.get("architecture") or platform()[1])
    if made_for != platform():
        raise _other_platform_error(image, f"{made_for[0]}/{made_for[1]}")


def _other_platform_error(image: str, others: str) -> NotFound:
    wanted = "/".join(platform())
    return NotFound(
        f"{image} is not made for {wanted}" + (f", but for {others}" if others else ""),
        remedy=f"build it for {wanted}",
    )


def _descriptor(value: Any) -> Descriptor:
    size = value["size"]
    if type(size) is not int or not 0 <= size <= MAX_BLOB_BYTES:
        raise ValueError(f"size {size!r}")
    return Descriptor(_digest(value["digest"]), size, str(value.get("mediaType") or ""))


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"digest {value!r}: only sha256 is supported")
    return value


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        value = parsed(body)
    except ValueError as error:
        raise damaged(url, error) from error
    if not isinstance(value, dict):
        raise damaged(url, "not a JSON object")
    return value


def asked_host(registry: str, reference: Reference) -> str:
    """Return HOST[:PORT] of the registry that is asked for an image.

    Args:
        registry: The agent's --docker_registry.
        reference: Name of the image.
    """
    return registry_host(_base(registry, reference).partition("://")[2])


def _base(registry: str, reference: Reference) -> str:
    """Return the address of the registry for an image.

    A host in the image's name takes precedence; it is reached by https, unless --docker_registry names the
    same host otherwise.
    """
    configured = _configured(registry)
    if not reference.host or configured.partition("://")[2] == reference.host:
        return configured
    if registry_host(reference.host) == HUB:
        return DEFAULT_REGISTRY
    return f"https://{reference.host}"


def _configured(registry: str) -> str:
    return (registry if "://" in registry else f"https://{registry}").rstrip("/")
