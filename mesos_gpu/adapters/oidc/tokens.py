"""Authentication by tokens that an issuer has signed, as `Authorization: Bearer eyJ…`."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from mesos_gpu.access import claims as rules_of_claims
from mesos_gpu.access.claims import Rules
from mesos_gpu.access.jws import ALGORITHMS, header_of, is_signed
from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.access.tokens import PREFIX
from mesos_gpu.adapters.oidc.client import Client
from mesos_gpu.adapters.oidc.issuer import Issuer
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.model.access.caller import Caller, Proof


class OidcTokens:
    """`Prover` for tokens of an issuer.

    Args:
        issuer: Issuer whose signatures are accepted.
        rules: Rules for the claims of a token.
        client: Client with which users log in there.
        algorithms: Accepted algorithms of signatures.
    """

    kind = Proof.OIDC
    challenge = 'Bearer realm="mesos_gpu"'

    def __init__(
        self, issuer: Issuer, rules: Rules, client: Client, algorithms: Sequence[str] = ALGORITHMS
    ) -> None:
        self.issuer, self.rules, self.client = issuer, rules, client
        self._algorithms = frozenset(algorithms)

    def of_browsers(self) -> "OidcTokens":
        """Return a prover for tokens that the issuer gives to the scheduler itself, after a login in a browser."""
        own = frozenset({self.client.id})
        rules = replace(self.rules, audiences=own, parties=own)
        return OidcTokens(self.issuer, rules, self.client, tuple(self._algorithms))

    async def identify(self, shown: Shown) -> Caller | None:
        """Identify the caller by its token, as for `Prover`."""
        header = shown.authorization
        if header is None or header.scheme != "bearer" or header.value.startswith(PREFIX):
            return None
        if not is_signed(header.value):
            raise WrongProof("the credential is neither a token of this scheduler nor of its issuer")
        return await self.caller_of(header.value, shown.address, shown.now)

    async def caller_of(self, token: str, address: str, now: float) -> Caller:
        """Return the caller that a token proves.

        Raises:
            WrongProof: The token is invalid or has expired.
        """
        return (await self.verified(token, address, now))[0]

    async def verified(self, token: str, address: str, now: float) -> tuple[Caller, Mapping[str, object]]:
        """Return the caller that a token proves, with the token's claims.

        Raises:
            WrongProof: The token is invalid or has expired.
        """
        header = header_of(token, self._algorithms)
        key = await self.issuer.key_of(header)
        payload = key.signed(token, header.algorithm)
        if payload is None:
            raise WrongProof("the token's signature is wrong")
        claims = _claims_in(payload)
        try:
            proved = rules_of_claims.judge(claims, self.rules, now)
        except WrongProof as wrong:
            wrong.claimed = rules_of_claims.claimed(claims, self.rules)[:256]
            raise
        mark = hashlib.sha256(token.encode()).hexdigest()[:16]
        return Caller(
            name=proved.name,
            groups=proved.groups,
            proof=Proof.OIDC,
            address=address,
            until=proved.until,
            proof_id=f"{key.thumbprint}.{mark}",
        ), claims

    def stands(self, caller: Caller) -> bool:
        """Return whether a caller's proof is still valid: its key must not have been withdrawn by the issuer."""
        return caller.proof is Proof.OIDC and self.issuer.has(caller.proof_id.partition(".")[0])


def _claims_in(payload: bytes) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(payload, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WrongProof("the token's payload is not a set of claims", guessed=False) from error
