"""A server's certificate is renewed while it runs: its files are looked at, and a change makes a new context.

New connections have it; those that are open go on with the one that they began with. Files that cannot be used change
nothing: what was loaded before stays, and the trouble is said once, and kept for who asks.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mesos_gpu.adapters.files.stamp import Stamp, stamp_of
from mesos_gpu.adapters.tls.server import Facts, TlsFiles, load
from mesos_gpu.errors import BadConfiguration, MesosGpuError

LOOK_S: Final = 2.0
WARN_S: Final = 14 * 86400.0  # before an end
logger = logging.getLogger("mesos_gpu.tls")

_Stamps = tuple[Stamp | None, ...]  # in the order of `TlsFiles.paths`


@dataclass(frozen=True, slots=True)
class TlsState:
    """What is served now. `loaded_at` in seconds since the epoch; `problem`: "" or what an operator must mend."""

    facts: Facts
    loaded_at: float
    problem: str


class ReloadedTls:
    """TLS of a server. Properties may be read from any thread."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        look_s: float = LOOK_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Load; nothing is looked at before `start`.

        Args:
            files: What to load, again and again.
            look_s: Between two looks.
            now: Seconds since the epoch.

        Raises:
            BadConfiguration: They cannot be used now.
        """
        self.files = files
        self._look_s, self._now = look_s, now
        self._handled = self._seen = _stamps(files)
        self._loaded, self._loaded_at = load(files), now()
        self._wrong = ""
        self._clients_changed: Callable[[], None] = lambda: None
        self._lock = threading.Lock()  # of a look
        self._wake, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="tls files", daemon=True)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._loaded.context

    @property
    def state(self) -> TlsState:
        """What is served, and what is wrong with it or with newer files."""
        return TlsState(self._loaded.facts, self._loaded_at, self._wrong or self._age())

    def start(self, clients_changed: Callable[[], None]) -> None:
        """Look from now on. `clients_changed` is called, on another thread, when other clients are to be believed."""
        self._clients_changed = clients_changed
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Look at once, as a handler of signals may ask for."""
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            asked = self._wake.wait(self._look_s)
            self._wake.clear()
            if not self._ended:
                self.look(at_once=asked)

    def look(self, *, at_once: bool = False) -> bool:
        """Whether newer files were taken.

        A change is believed when it has rested for a look: of two files that are written one after the other the first
        alone would not do. `at_once`: somebody says that all is written.
        """
        with self._lock:
            stamp = _stamps(self.files)
            if stamp == self._handled:
                return False
            rested, self._seen = stamp == self._seen, stamp
            return self._take(stamp) if rested or at_once else False

    def _take(self, stamp: _Stamps) -> bool:
        try:
            loaded = load(self.files)
            if loaded.facts.not_after <= self._now() < self._loaded.facts.not_after:
                raise BadConfiguration(
                    f"{self.files.certificate}: the certificate has expired", remedy="write one that is good"
                )
        except MesosGpuError as error:
            self._handled = stamp
            self._wrong = f"new TLS files are not used, the earlier ones are: {error.what}"
            logger.error("%s; to fix: %s", self._wrong, error.remedy)
            return False
        if _stamps(self.files) != stamp:
            return False  # they were written meanwhile: the next look takes them
        clients = _of_clients(self.files, stamp) != _of_clients(self.files, self._handled)
        self._loaded, self._loaded_at, self._handled, self._wrong = loaded, self._now(), stamp, ""
        logger.info("new TLS files are used: %s", loaded.facts.subject)
        if clients:
            self._clients_changed()
        return True

    def _age(self) -> str:
        facts, now = self._loaded.facts, self._now()
        if facts.not_after <= now:
            return f"{self.files.certificate}: the certificate has expired: clients refuse it"
        if facts.crl_until is not None and facts.crl_until <= now:
            what = "the list of revoked certificates has expired: all clients' certificates are refused"
            return f"{self.files.crl}: {what}"
        if facts.not_before > now:
            return f"{self.files.certificate}: the certificate is not valid yet: clients refuse it"
        if facts.not_after - now < WARN_S:
            return f"{self.files.certificate}: the certificate expires in {(facts.not_after - now) / 86400:.1f} days"
        return ""


def _stamps(files: TlsFiles) -> _Stamps:
    return tuple(map(stamp_of, files.paths))


def _of_clients(files: TlsFiles, stamp: _Stamps) -> _Stamps:
    own = (files.certificate, files.key)
    return tuple(each for path, each in zip(files.paths, stamp, strict=True) if path not in own)
