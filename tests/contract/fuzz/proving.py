"""Real proofs of the names of a document: a password for one of them, tokens for the others."""

import secrets
import time
from base64 import b64encode
from collections.abc import Collection
from pathlib import Path
from typing import Final

import bcrypt

from mesos_gpu.access import tokens
from mesos_gpu.access.guesses import Guesses
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.proofs.passwords import Passwords
from mesos_gpu.adapters.proofs.tokens import Tokens
from mesos_gpu.api.login.who import Who
from mesos_gpu.engine.events import TokenCreated
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.model.access.token import Token
from mesos_gpu.scheduler.daemon import Daemon

BY_PASSWORD: Final = "carl"
DAY_S: Final = 86400.0


def proved(daemon: Daemon, names: Collection[str], directory: Path) -> tuple[Who, dict[bytes, bytes]]:
    """What says who asks, and the Authorization of each name. `directory`: for the file of passwords."""
    word = secrets.token_urlsafe(tokens.SECRET_BYTES)
    file = directory / "htpasswd"
    file.write_text(f"{BY_PASSWORD}:{bcrypt.hashpw(word.encode(), bcrypt.gensalt(4)).decode()}\n")
    file.chmod(0o600)
    headers = {name.encode(): b"Bearer " + token_of(daemon, name) for name in names if name != BY_PASSWORD}
    headers[BY_PASSWORD.encode()] = b"Basic " + b64encode(f"{BY_PASSWORD}:{word}".encode())
    guesses = Guesses()
    provers = (Tokens(lambda id: daemon.tokens.get(id), lambda *_: None), Passwords(Htpasswd(file), guesses))
    return Who(provers, (Proof.TOKEN, Proof.PASSWORD), guesses=guesses), headers


def token_of(daemon: Daemon, name: str) -> bytes:
    """Make one."""
    id, secret = secrets.token_hex(tokens.ID_BYTES), secrets.token_urlsafe(tokens.SECRET_BYTES)
    salt, now = secrets.token_hex(tokens.SALT_BYTES), time.time()
    token = Token(id, name, salt, tokens.digest_of(salt, secret), now, now + DAY_S, created_by=name)
    daemon.request(TokenCreated(token, now + DAY_S)).result(
        60
    )  # the clock of a fake scheduler begins near the epoch
    return tokens.text_of(id, secret).encode()
