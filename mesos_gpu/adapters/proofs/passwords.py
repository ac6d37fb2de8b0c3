"""Authentication by name and password, by HTTP basic or the login page, against a file of bcrypt hashes.

A right password is remembered for a while, so that polling clients do not wait for bcrypt each time: as a MAC under a
key of this process.
"""

import asyncio
import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping
from math import ceil
from typing import Final

import bcrypt

from mesos_gpu.access.guesses import Guesses
from mesos_gpu.access.proofs import NameAndPassword, WrongProof, basic
from mesos_gpu.access.tokens import PREFIX
from mesos_gpu.adapters.proofs.htpasswd import MIN_COST, Htpasswd, cost_of
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.model.access.caller import Caller, Proof

AT_ONCE: Final = 2  # hashes computed concurrently
MAX_WAITING: Final = 32  # requests that wait for a hash
MAX_OF_ADDRESS: Final = 6  # of these from one address
REMEMBERED_S: Final = 300.0
MAX_REMEMBERED: Final = 1000
MAX_LENGTH: Final = 72  # bytes, as bcrypt ignores the rest
_KEY: Final = secrets.token_bytes(32)
_WRONG: Final = "wrong name or password"


class Passwords:
    """`Prover` for names and passwords.

    Args:
        file: File of names and hashes.
        guesses: Limits of wrong passwords.
    """

    kind = Proof.PASSWORD
    challenge = 'Basic realm="mesos_gpu", charset="UTF-8"'

    def __init__(self, file: Htpasswd, guesses: Guesses) -> None:
        self._file, self._guesses = file, guesses
        self._slots, self._waiting = asyncio.Semaphore(AT_ONCE), Counter[str]()
        # Time until which it is remembered, and the line.
        self._right: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    async def identify(self, shown: Shown) -> Caller | None:
        """Identify the caller by name and password, as for `Prover`."""
        header = shown.authorization
        if header is None or header.scheme != "basic":
            return None
        credentials = basic(header.value)
        if credentials.name.startswith(PREFIX) or credentials.password.startswith(PREFIX):
            return None  # a token
        return await self.caller_of(credentials, shown.address, shown.now)

    async def caller_of(self, given: NameAndPassword, address: str, now: float) -> Caller:
        """Return the caller that a name and a password prove.

        Raises:
            WrongProof: They do not match; or there were too many wrong guesses, and they were not checked.
        """
        lines = self._file.hashes()
        line = lines.get(given.name)
        mac = _mac("password", given.name, given.password)
        until, remembered = self._right.get(mac, (0.0, ""))
        if line is None or now >= until or not hmac.compare_digest(line, remembered):
            if not await self._check_password(given, line, lines, address, now):
                self._guesses.wrong(address, given.name, now)
                raise WrongProof(_WRONG, given.name, guessed=False)  # `wrong` has counted it already
            assert line is not None
            self._remember(mac, line, now)
        return Caller(given.name, proof=Proof.PASSWORD, address=address, proof_id=_line_id(given.name, line))

    def stands(self, caller: Caller) -> bool:
        """Return whether the file still has the same line for the name."""
        line = self._file.hashes().get(caller.name)
        return line is not None and _line_id(caller.name, line) == caller.proof_id

    async def _check_password(
        self,
        credentials: NameAndPassword,
        line: str | None,
        lines: Mapping[str, str],
        address: str,
        now: float,
    ) -> bool:
        """Check a password against a line, or a decoy, within the limits; return whether it is right."""
        _refuse(self._guesses.ask(address, credentials.name, now), credentials.name)
        if self._waiting.total() >= MAX_WAITING or self._waiting[address] >= MAX_OF_ADDRESS:
            raise WrongProof(
                "too many passwords are being checked", credentials.name, guessed=False, retry_s=1
            )
        self._waiting[address] += 1
        try:
            async with self._slots:
                # Other requests may have sent wrong passwords meanwhile.
                _refuse(self._guesses.look(address, credentials.name, now), credentials.name)
                right = await asyncio.to_thread(
                    _is_right, credentials.password, line or _decoy(credentials.name, lines)
                )
        finally:
            self._waiting -= Counter((address,))  # removes counts of 0
        return right and line is not None

    def _remember(self, mac: bytes, line: str, now: float) -> None:
        self._right.pop(mac, None)
        self._right[mac] = (now + REMEMBERED_S, line)
        if len(self._right) > MAX_REMEMBERED:
            self._right.popitem(last=False)


def _refuse(wait_s: float, name: str) -> None:
    if wait_s:
        raise WrongProof("no password is checked now", name, guessed=False, retry_s=ceil(wait_s))


def _is_right(password: str, line: str) -> bool:
    raw = password.encode()
    fits = len(raw) <= MAX_LENGTH and b"\0" not in raw
    return bcrypt.checkpw(raw if fits else b"", line.encode()) and fits


def _decoy(name: str, lines: Mapping[str, str]) -> str:
    """Return a hash as expensive as those of the file, always the same for a name, to check unknown names against."""
    costs = sorted(cost_of(line) for line in lines.values()) or [MIN_COST]
    chosen = costs[int.from_bytes(_mac("decoy", name)[:8], "big") % len(costs)]
    return f"$2b${chosen:02}${'.' * 21}u{'.' * 31}"


def _line_id(name: str, line: str) -> str:
    """Return an id that distinguishes lines of one name, and reveals nothing of the hash."""
    return _mac("line", name, line).hex()[:16]


def _mac(*parts: str) -> bytes:
    return hmac.digest(_KEY, b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts), "sha256")
