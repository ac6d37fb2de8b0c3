"""Tokens of an issuer over a real server, against an issuer that signs what it should and what it should not."""

import asyncio
import hashlib
import hmac
import json
import statistics
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mesos_gpu.access.claims import Rules
from mesos_gpu.access.jws import MAX_LENGTH
from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.adapters.oidc.client import Client
from mesos_gpu.adapters.oidc.fetching import Fetcher
from mesos_gpu.adapters.oidc.issuer import Issuer, Times
from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.api.login.counts import WRONG
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.caller import Proof
from tests.conftest import wait_until
from tests.contract.login.rig import LoginRig, TokenStore, said
from tests.doubles.oidc.issuer import CLIENT, OidcIssuer, SigningKey, new_key


class Clock:
    """The monotonic clock, which a test puts forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def prover(issuer: OidcIssuer, clock: Clock) -> OidcTokens:
    rules = Rules(issuer.url, frozenset({CLIENT}))
    return OidcTokens(Issuer(issuer.url, Fetcher(), Times(), clock), rules, Client(CLIENT))


@pytest.fixture
def rig(prover: OidcTokens) -> Iterator[LoginRig]:
    rig = LoginRig([TokenStore().prover(), prover])
    yield rig
    rig.close()


def refusal(rig: LoginRig, token: str) -> str:
    """Why a token is refused."""
    answer = rig.call("GET", "/v1/status", token)
    assert answer.status_code in (401, 429), answer.text
    assert token not in answer.text
    return said(answer)[1]


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def by_hand(header: Mapping[str, object], claims: Mapping[str, object], secret: bytes | None = None) -> str:
    """A token that no library would make: signed by HMAC, or not at all."""
    text = f"{part(header)}.{part(claims)}"
    mac = hmac.digest(secret, text.encode(), hashlib.sha256) if secret is not None else b""
    return f"{text}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def test_a_token_is_a_name_with_the_groups_that_the_issuer_says(rig: LoginRig, issuer: OidcIssuer) -> None:
    assert rig.call("GET", "/v1/status", issuer.token()).status_code == 200
    assert rig.call("POST", "/v1/jobs", issuer.token(), json={"command": "true"}).status_code == 201
    eve = issuer.token(preferred_username="eve")
    assert rig.call("GET", "/v1/status", eve).status_code == 200
    assert rig.call("POST", "/v1/jobs", eve, json={"command": "true"}).status_code == 403
    assert rig.call("GET", "/v1/status", issuer.token(preferred_username="eve", groups=[])).status_code == 403
    assert issuer.hits["/keys"] == 1


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"])
def test_oidc_takes_each_algorithm_of_public_keys(rig: LoginRig, issuer: OidcIssuer, algorithm: str) -> None:
    issuer.rotate(algorithm)
    assert rig.call("GET", "/v1/status", issuer.token()).status_code == 200


def test_oidc_token_that_is_expired_early_or_for_others_is_refused(rig: LoginRig, issuer: OidcIssuer) -> None:
    now, before = int(time.time()), WRONG.read()["oidc"]
    assert "expired" in refusal(rig, issuer.token(iat=now - 600, exp=now - 120))
    assert "not valid yet" in refusal(rig, issuer.token(nbf=now + 120))
    assert "not valid yet" in refusal(rig, issuer.token(iat=now + 120, exp=now + 400))
    assert "another audience" in refusal(rig, issuer.token(aud="mail"))
    assert "another issuer" in refusal(rig, issuer.token(iss=issuer.url + "/"))
    assert "issued to a client" in refusal(rig, issuer.token(azp="mail"))
    assert "(exp)" in refusal(rig, issuer.token(exp=None))
    assert "(iat)" in refusal(rig, issuer.token(iat=None))
    assert "no name" in refusal(rig, issuer.token(preferred_username=None))
    assert "is valid for longer" in refusal(rig, issuer.token(exp=now + 90_000))
    assert rig.call("GET", "/v1/status", issuer.token(iat=now - 600, exp=now - 30)).status_code == 200
    assert WRONG.read()["oidc"] - before == 10
    assert len(rig.who.guesses) > 0  # the right one; none of the wrong was a guess
    assert rig.who.guesses.wait_s("127.0.0.1", "", time.time()) == 0


def test_forged_tokens_are_refused(rig: LoginRig, issuer: OidcIssuer) -> None:
    key, claims = issuer.keys[0], issuer.claims(preferred_username="root")
    other = new_key(key_id=key.key_id)  # another key by the same name
    assert refusal(rig, issuer.token(other)) == "the token's signature is wrong"
    good = issuer.token()
    header, _, signature = good.split(".")
    assert refusal(rig, f"{header}.{part(claims)}.{signature}") == "the token's signature is wrong"
    assert refusal(rig, f"{header}.{part(claims)}.") == "the token's signature is wrong"
    for algorithm in ("none", "None", "nOnE", "", "HS256", "HS384", "ES256K", "dir"):
        forged = by_hand({"alg": algorithm, "kid": key.key_id}, claims)
        assert "signed with an algorithm" in refusal(rig, forged), algorithm


def test_a_public_key_is_no_secret_for_hmac(rig: LoginRig, issuer: OidcIssuer) -> None:
    key = issuer.rotate("RS256")
    public = key.private.public_key()
    for encoding in (Encoding.PEM, Encoding.DER):
        secret = public.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
        forged = by_hand({"alg": "HS256", "kid": key.key_id, "typ": "JWT"}, issuer.claims(), secret)
        assert "signed with an algorithm" in refusal(rig, forged)
        forged = by_hand({"alg": "RS256", "kid": key.key_id, "typ": "JWT"}, issuer.claims(), secret)
        assert refusal(rig, forged) == "the token's signature is wrong"


def test_a_key_of_one_kind_is_not_used_for_another(rig: LoginRig, issuer: OidcIssuer) -> None:
    key = issuer.keys[0]
    rsa_key = SigningKey(key.key_id, "RS256", rsa.generate_private_key(65537, 2048))
    assert "does not have" in refusal(rig, issuer.token(rsa_key))
    p384 = SigningKey(key.key_id, "ES384", ec.generate_private_key(ec.SECP384R1()))
    assert "does not have" in refusal(rig, issuer.token(p384))


def test_keys_that_a_token_brings_along_are_not_looked_at(rig: LoginRig, issuer: OidcIssuer) -> None:
    own = new_key()
    with OidcIssuer(keys=[own]) as attacker:
        for header in (
            {"jwk": own.public_jwk()},
            {"jku": f"{attacker.url}/keys"},
            {"x5u": f"{attacker.url}/keys", "kid": f"{attacker.url}/keys"},
            {"kid": "../../keys"},
            {"kid": "x' OR '1'='1"},
            {"kid": "/dev/null"},
        ):
            assert "does not have" in refusal(rig, issuer.token(own, header))
        assert "signature is wrong" in refusal(
            rig, issuer.token(own, {"jwk": own.public_jwk(), "kid": issuer.keys[0].key_id})
        )
        assert not attacker.hits


def test_oidc_refuses_text_that_is_no_token_of_an_issuer(rig: LoginRig, issuer: OidcIssuer) -> None:
    good = issuer.token()
    header, payload, signature = good.split(".")
    assert "neither" in refusal(
        rig, "no-token"
    )  # an id of a request, which is hexadecimal, may have "abc" in it
    assert "neither" in refusal(rig, f"{header}.{payload}")
    assert "neither" in refusal(rig, f"{good}.{payload}.{signature}")
    assert "RFC 7515" in refusal(rig, f"ey!.{payload}.{signature}")
    assert "RFC 7515" in refusal(rig, f"{part([1])}.{payload}.{signature}".replace("W", "ey", 1))
    assert "RFC 7515" in refusal(rig, by_hand({"alg": "ES256", "kid": ["a"]}, {}))
    assert "RFC 7515" in refusal(rig, by_hand({"alg": "ES256", "kid": "k" * 257}, {}))


def test_headers_that_change_what_a_token_means_are_refused(rig: LoginRig, issuer: OidcIssuer) -> None:
    assert "extensions" in refusal(rig, issuer.token(header={"crit": ["exp"], "exp": 1}))
    assert "not an identity or access token" in refusal(rig, issuer.token(header={"typ": "logout+jwt"}))
    assert rig.call("GET", "/v1/status", issuer.token(header={"typ": "at+jwt"})).status_code == 200


def test_an_oversized_oidc_token_is_refused_before_the_issuer_is_asked(
    prover: OidcTokens, issuer: OidcIssuer
) -> None:
    with pytest.raises(WrongProof, match="more than 16384 characters"):
        asyncio.run(prover.caller_of(issuer.token(padding="x" * MAX_LENGTH), "", time.time()))
    with pytest.raises(WrongProof, match="RFC 7515"):
        asyncio.run(prover.caller_of("ey" + "W" * 9000 + ".e30.x", "", time.time()))
    assert not issuer.hits


def test_keys_rotate_without_a_gap(rig: LoginRig, issuer: OidcIssuer, clock: Clock) -> None:
    old = issuer.keys[0]
    before = issuer.token()
    assert rig.call("GET", "/v1/status", before).status_code == 200
    clock.ahead_s += 31
    issuer.rotate(keep=True)
    assert rig.call("GET", "/v1/status", issuer.token()).status_code == 200  # asked for at once
    assert rig.call("GET", "/v1/status", before).status_code == 200
    clock.ahead_s += 31
    issuer.rotate("EdDSA")
    assert rig.call("GET", "/v1/status", issuer.token()).status_code == 200
    assert "does not have" in refusal(rig, issuer.token(old))
    assert "does not have" in refusal(rig, before)


def test_oidc_session_ends_with_the_key_that_began_it(
    prover: OidcTokens, issuer: OidcIssuer, clock: Clock
) -> None:
    async def both() -> tuple[bool, bool]:
        caller = await prover.caller_of(issuer.token(), "", time.time())
        before = prover.stands(caller)
        issuer.rotate()
        clock.ahead_s += 31
        await prover.caller_of(issuer.token(), "", time.time())
        return before, prover.stands(caller)

    assert asyncio.run(both()) == (True, False)


def test_tokens_of_unknown_keys_do_not_make_us_ask_again_and_again(
    rig: LoginRig, issuer: OidcIssuer, clock: Clock
) -> None:
    good = issuer.token()
    assert rig.call("GET", "/v1/status", good).status_code == 200
    forged = [issuer.token(header={"kid": f"k{number}"}) for number in range(60)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda token: rig.call("GET", "/v1/status", token).status_code, forged))
    assert set(answers) <= {401, 429}
    assert issuer.hits["/keys"] == 1  # the pause since the first one is not over
    clock.ahead_s += 31
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda token: rig.call("GET", "/v1/status", token).status_code, forged))
    assert issuer.hits["/keys"] == 2
    assert rig.call("GET", "/v1/status", good).status_code == 200


def test_old_keys_are_asked_for_again_while_they_are_used(
    rig: LoginRig, issuer: OidcIssuer, clock: Clock
) -> None:
    good = issuer.token()
    assert rig.call("GET", "/v1/status", good).status_code == 200
    clock.ahead_s += 301
    assert rig.call("GET", "/v1/status", good).status_code == 200
    wait_until("the keys are asked for", lambda: issuer.hits["/keys"] == 2)


def test_oidc_keys_go_on_for_a_limited_time_without_the_issuer(
    rig: LoginRig, issuer: OidcIssuer, clock: Clock, prover: OidcTokens
) -> None:
    good = issuer.token()
    assert rig.call("GET", "/v1/status", good).status_code == 200
    issuer.broken["/keys"] = None
    clock.ahead_s += 5 * 3600
    assert rig.call("GET", "/v1/status", good).status_code == 200
    wait_until("the try has failed", lambda: bool(prover.issuer.problem))
    assert "answers 500" in rig.call("GET", "/v1/status", good).json()["issuer_problem"]
    assert "does not have" in refusal(rig, issuer.token(header={"kid": "new"}))
    clock.ahead_s += 3601
    assert refusal(rig, good) == "the issuer's keys are not available"
    issuer.broken.clear()
    clock.ahead_s += 31
    assert rig.call("GET", "/v1/status", good).status_code == 200
    assert rig.call("GET", "/v1/status", good).json()["issuer_problem"] is None
    assert rig.who.guesses.wait_s("127.0.0.1", "", time.time()) == 0


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ({"changes": {"issuer": "https://other"}}, "says that its issuer is"),
        ({"changes": {"jwks_uri": "http://192.0.2.1/keys"}}, "could be read and changed"),
        ({"changes": {"jwks_uri": "file:///etc/passwd"}}, "is not an address"),
        ({"changes": {"jwks_uri": 1}}, "not an OpenID Connect discovery document"),
        ({"broken": {"/.well-known/openid-configuration": None}}, "answers 500"),
        (
            {"broken": {"/.well-known/openid-configuration": b"<html>"}},
            "not an OpenID Connect discovery document",
        ),
        ({"broken": {"/keys": b"[]"}}, "key document is invalid"),
        ({"broken": {"/keys": b'{"keys": []}'}}, "no key"),
        ({"broken": {"/keys": b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "a"}]}'}}, "no key"),
        ({"broken": {"/keys": b'{"keys": [{"kty": "EC", "crv": "P-256"}]}'}}, "no key"),
        ({"broken": {"/keys": b'{"keys": [' + b"{}," * 64 + b"{}]}"}}, "more than 64 keys"),
        ({"broken": {"/keys": b'{"keys": "' + b"x" * (1 << 20) + b'"}'}}, "more than 1048576 bytes"),
        ({"redirects": {"/keys": "http://192.0.2.1/"}}, "not followed"),
        ({"redirects": {"/.well-known/openid-configuration": "http://192.0.2.1/"}}, "not followed"),
    ],
)
def test_an_issuer_that_answers_otherwise_proves_nothing(
    rig: LoginRig, issuer: OidcIssuer, prover: OidcTokens, spoil: Mapping[str, object], why: str
) -> None:
    for name, value in spoil.items():
        setattr(issuer, name, value)
    assert refusal(rig, issuer.token()) == "the issuer's keys are not available"
    assert why in prover.issuer.problem


def test_weak_private_or_other_keys_are_left_out(rig: LoginRig, issuer: OidcIssuer) -> None:
    good = new_key()
    weak = SigningKey("weak", "RS256", rsa.generate_private_key(65537, 1024))
    listed = [
        good.public_jwk(),
        weak.public_jwk(),
        {**new_key(key_id="enc").public_jwk(), "use": "enc"},
        {**new_key(key_id="ops").public_jwk(), "key_ops": ["encrypt"]},
        {**new_key(key_id="d").public_jwk(), "d": "AAAA"},
    ]
    issuer.broken["/keys"] = json.dumps({"keys": listed}).encode()
    assert rig.call("GET", "/v1/status", issuer.token(good)).status_code == 200
    for key_id in ("enc", "ops", "d"):
        assert "does not have" in refusal(rig, issuer.token(new_key(key_id=key_id)))


def test_oidc_token_without_a_key_id_is_taken_if_there_is_one_key(
    rig: LoginRig, issuer: OidcIssuer, clock: Clock
) -> None:
    unnamed = issuer.token(header={"kid": None})
    assert rig.call("GET", "/v1/status", unnamed).status_code == 200
    issuer.rotate(keep=True)
    clock.ahead_s += 31
    assert rig.call("GET", "/v1/status", issuer.token()).status_code == 200
    assert "does not have" in refusal(rig, unnamed)


@pytest.mark.parametrize(
    "url",
    ["http://id.example.org", "ftp://id", "id.example.org", "https://a@id", "https://id/#x", "https://i d"],
)
def test_an_issuer_is_an_address_that_nobody_on_the_way_can_answer_for(url: str) -> None:
    with pytest.raises(BadConfiguration):
        Issuer(url, Fetcher())


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_judging_a_token_costs_little_beside_its_signature(
    prover: OidcTokens, issuer: OidcIssuer, algorithm: str
) -> None:
    key = jwt.PyJWK(issuer.rotate(algorithm).public_jwk()).key
    token = issuer.token()
    jws = jwt.PyJWS(algorithms=[algorithm])

    async def measured() -> list[tuple[float, float]]:
        await prover.caller_of(token, "", time.time())
        spans = []
        for _ in range(300):
            begin = time.thread_time()
            caller = await prover.caller_of(token, "", time.time())
            judged = time.thread_time()
            jws.decode(token, key, [algorithm])
            spans.append((judged - begin, time.thread_time() - judged))
        assert caller.proof is Proof.OIDC
        return spans

    judged_ms, verified_ms = (
        statistics.median(each) * 1e3 for each in zip(*asyncio.run(measured()), strict=True)
    )
    print(f"{algorithm}: {judged_ms:.3f} ms, of the signature alone {verified_ms:.3f} ms")
    assert judged_ms < 3 * verified_ms


def test_oidc_login_ways_are_told_without_a_login(rig: LoginRig, issuer: OidcIssuer) -> None:
    assert rig.call("GET", "/v1/login").json() == {
        "proofs": ["token", "oidc"],
        "oidc": {
            "issuer": issuer.url,
            "client_id": CLIENT,
            "scopes": ["openid", "profile", "email"],
            "token": "id_token",
        },
    }
