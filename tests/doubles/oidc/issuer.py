"""An OpenID Connect issuer for tests: an HTTP server with keys that rotate, and logins by device and by browser.

It signs any claims that a test gives, invalid ones included.
"""

import base64
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex, token_urlsafe
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

CLIENT: Final = "mesos-gpu"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_JWS: Final = jwt.PyJWS()
_JWS.register_algorithm("Ed25519", OKPAlgorithm())
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True)
class SigningKey:
    """A private key with its id and algorithm."""

    key_id: str
    algorithm: str
    private: PrivateKey

    def public_jwk(self) -> dict[str, Any]:
        """Return the public key as a JWK, as the issuer publishes it."""
        reader: Any = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm}.get(
            self.algorithm[:2], OKPAlgorithm
        )
        jwk = reader.to_jwk(self.private.public_key(), as_dict=True)
        return {**jwk, "kid": self.key_id, "use": "sig", "alg": self.algorithm}


def new_key(algorithm: str = "ES256", key_id: str = "") -> SigningKey:
    """Generate a key; RSA keys take about a second."""
    private: PrivateKey
    if algorithm[:2] in ("RS", "PS"):
        private = rsa.generate_private_key(65537, 2048)
    elif algorithm in ("EdDSA", "Ed25519"):
        private = ed25519.Ed25519PrivateKey.generate()
    else:
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        private = ec.generate_private_key(curves[algorithm])
    return SigningKey(key_id or token_hex(4), algorithm, private)


@dataclass
class DeviceLogin:
    """A login by device that a person has to allow."""

    user_code: str
    expires_at: float
    claims: Mapping[str, object] | None = None
    refused: bool = False
    asked: int = 0


@dataclass
class OidcIssuer:
    """An issuer that serves on 127.0.0.1 as a context manager.

    Attributes:
        keys: Published keys; the first one signs.
        hits: Number of requests by path.
        changes: Fields that replace those of the discovery document.
        broken: Bodies of paths that answer with wrong bytes; None for an answer 500.
        redirects: Target by path that redirects.
        person: Claims of the user who logs in.
        slow_down: Number of polls that get the answer "slow_down".
        life_s: Seconds until tokens expire.
    """

    keys: list[SigningKey] = field(default_factory=lambda: [new_key()])
    hits: "Counter[str]" = field(default_factory=Counter)
    changes: dict[str, object] = field(default_factory=dict)
    broken: dict[str, bytes | None] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    devices: dict[str, DeviceLogin] = field(default_factory=dict)
    refreshing: dict[str, Mapping[str, object]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    person: Mapping[str, object] = field(
        default_factory=lambda: {"sub": "0001", "preferred_username": "ann", "groups": ["watchers"]}
    )
    slow_down: int = 0
    device_life_s: float = 60.0
    interval_s: int = 0
    life_s: float = 300.0
    secret: str = ""

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"of": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self) -> str:
        """URL of the issuer, its "iss"."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def rotate(self, algorithm: str = "ES256", *, keep: bool = False) -> SigningKey:
        """Sign with a new key from now on; `keep` leaves earlier keys published."""
        key = new_key(algorithm)
        self.keys = [key, *(self.keys if keep else ())]
        return key

    def claims(self, **more: object) -> dict[str, object]:
        """Return the claims of a valid token, changed by `more`; claims of None are left out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + int(self.life_s), **self.person}
        return {name: value for name, value in {**usual, **more}.items() if value is not None}

    def token(
        self, key: SigningKey | None = None, header: Mapping[str, object] | None = None, **more: object
    ) -> str:
        """Return a token of `claims(**more)`, signed with the first key or another one."""
        return self.signed(self.claims(**more), key, header)

    def signed(
        self,
        claims: dict[str, object],
        key: SigningKey | None = None,
        header: Mapping[str, object] | None = None,
    ) -> str:
        """Return a signed token of claims."""
        signing = key or self.keys[0]
        named: dict[str, object] = {"kid": signing.key_id, **(header or {})}
        headers = {name: value for name, value in named.items() if value is not None}
        return _JWS.encode(json.dumps(claims).encode(), signing.private, signing.algorithm, headers)

    def allow(self, user_code: str, **claims: object) -> None:
        """Allow a login, as a person who opens the page and types the code."""
        self._device(user_code).claims = {**self.person, **claims}

    def deny(self, user_code: str) -> None:
        """Refuse a login."""
        self._device(user_code).refused = True

    def _device(self, user_code: str) -> DeviceLogin:
        return next(each for each in self.devices.values() if each.user_code == user_code)

    def discovery(self) -> dict[str, object]:
        """Return the discovery document."""
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "device_authorization_endpoint": f"{self.url}/device",
            "id_token_signing_alg_values_supported": ["ES256"],
            **self.changes,
        }

    def begin_device(self, _form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        """Begin a login by device (RFC 8628, section 3.2); return status and body of the answer."""
        code, user_code = token_urlsafe(16), token_hex(4).upper()
        self.devices[code] = DeviceLogin(user_code, time.time() + self.device_life_s)
        return 200, {
            "device_code": code,
            "user_code": user_code,
            "verification_uri": f"{self.url}/activate",
            "verification_uri_complete": f"{self.url}/activate?user_code={user_code}",
            "expires_in": int(self.device_life_s),
            "interval": self.interval_s,
        }

    def give(self, form: Mapping[str, str], authorization: str) -> tuple[int, dict[str, object]]:
        """Answer a request to the token endpoint; return status and body."""
        if self.secret and not self._is_client(form, authorization):
            return 401, {"error": "invalid_client", "error_description": "client authentication failed"}
        grant = form.get("grant_type")
        if grant == DEVICE_GRANT:
            return self._of_device(form)
        if grant == "refresh_token":
            person = self.refreshing.pop(form.get("refresh_token", ""), None)
            return self._tokens(person) if person is not None else (400, {"error": "invalid_grant"})
        if grant == "authorization_code":
            return self._of_code(form)
        return 400, {"error": "unsupported_grant_type"}

    def _is_client(self, form: Mapping[str, str], authorization: str) -> bool:
        """Return whether a client sends its secret by the published method, HTTP basic by default."""
        if "client_secret_post" in str(self.changes.get("token_endpoint_auth_methods_supported")):
            return not authorization and form.get("client_secret") == self.secret
        pair = f"{quote_plus(CLIENT)}:{quote_plus(self.secret)}"  # RFC 6749, section 2.3.1
        basic = base64.b64encode(pair.encode()).decode()
        return authorization == f"Basic {basic}" and "client_secret" not in form

    def _of_device(self, form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        device = self.devices.get(form.get("device_code", ""))
        if device is None:
            return 400, {"error": "invalid_grant"}
        device.asked += 1
        if self.slow_down > 0:
            self.slow_down -= 1
            return 400, {"error": "slow_down"}
        if time.time() > device.expires_at:
            return 400, {"error": "expired_token"}
        if device.refused:
            return 400, {"error": "access_denied"}
        if device.claims is None:
            return 400, {"error": "authorization_pending"}
        del self.devices[form["device_code"]]
        return self._tokens(device.claims)

    def _of_code(self, form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
        ):
            return 400, {"error": "invalid_grant"}
        return self._tokens({**self.person, "nonce": asked.get("nonce")})

    def _tokens(self, person: Mapping[str, object]) -> tuple[int, dict[str, object]]:
        refresh = token_urlsafe(16)
        self.refreshing[refresh] = person
        return 200, {
            "access_token": token_urlsafe(16),
            "id_token": self.signed(self.claims(**person)),
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": int(self.life_s),
        }

    def authorize(self, query: Mapping[str, str]) -> str:
        """Return the URL to which a browser is redirected after the login."""
        code = token_urlsafe(16)
        self.codes[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"


class _Handler(BaseHTTPRequestHandler):
    of: OidcIssuer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        """Answer requests for the discovery document, keys and authorization."""
        parts = urlsplit(self.path)
        if self._spoiled(parts.path):
            return
        if parts.path == "/.well-known/openid-configuration":
            self._answer(200, self.of.discovery())
        elif parts.path == "/keys":
            self._answer(200, {"keys": [key.public_jwk() for key in self.of.keys]})
        elif parts.path == "/authorize":
            self._redirect(self.of.authorize(_first(parts.query)))
        else:
            self._answer(404, {"error": "not_found"})

    def do_POST(self) -> None:
        """Answer requests for logins and tokens."""
        form = _first(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        path = urlsplit(self.path).path
        if self._spoiled(path):
            return
        if path == "/device":
            self._answer(*self.of.begin_device(form))
        elif path == "/token":
            self._answer(*self.of.give(form, self.headers.get("Authorization", "")))
        else:
            self._answer(404, {"error": "not_found"})

    def _spoiled(self, path: str) -> bool:
        self.of.hits[path] += 1
        if path in self.of.redirects:
            self._redirect(self.of.redirects[path])
            return True
        if path not in self.of.broken:
            return False
        body = self.of.broken[path]
        self._send(500 if body is None else 200, body or b"{}")
        return True

    def _answer(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode())

    def _redirect(self, where: str) -> None:
        self.send_response(302)
        self.send_header("Location", where)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _first(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}
