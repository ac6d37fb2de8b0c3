"""Tokens that this scheduler issues, as text: `mgt_<id>_<secret>`, and what is kept of the secret.

The secret has 256 bits of chance, so a quick hash keeps it: nobody can try 2^255 of them, however quick. (A password
that a person has thought of needs a slow one.) The prefix lets programs that search code for secrets find it.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.access.token import Token

PREFIX: Final = "mgt_"
SECRET_BYTES: Final = 32
ID_BYTES: Final = 8  # written as 16 hexadecimal digits
_FORM: Final = re.compile(r"mgt_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class TokenText:
    """What who has the token shows."""

    id: str
    secret: str = field(repr=False)  # of 32 bytes, as base64 for URLs without padding has them

    def __str__(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"


def looks_like_one(text: str) -> bool:
    """Whether it is meant to be a token of ours, right or wrong."""
    return text.startswith(PREFIX)


def parse(text: str) -> TokenText | None:
    """Read a token; None: it has not the form of one."""
    found = _FORM.fullmatch(text)
    return TokenText(found[1], found[2]) if found else None


def digest(salt: str, secret: str) -> str:
    """What is kept of a secret: SHA-256 under HMAC with the salt (hexadecimal) as its key, hexadecimal."""
    return hmac.new(bytes.fromhex(salt), secret.encode(), hashlib.sha256).hexdigest()


def is_of(token: Token, secret: str) -> bool:
    """Whether the secret is the token's; it takes as long for a wrong one as for the right one."""
    return hmac.compare_digest(digest(token.salt, secret), token.digest)
