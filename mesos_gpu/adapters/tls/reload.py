"""Renewal of a server's certificate while it runs: its files are polled, and a change creates a new context.

New connections use it; existing ones keep their context. Unusable files change nothing: the previous context stays, and
the problem is logged once, and kept for status queries.
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
WARN_S: Final = 14 * 86400.0  # before the end of a certificate's validity
logger = logging.getLogger("mesos_gpu.tls")

_Stamps = tuple[Stamp | None, ...]  # in the order of `TlsFiles.paths`


@dataclass(frozen=True, slots=True)
class TlsState:
    """Certificate in use. `loaded_at` in seconds since the epoch; `problem`: "" or what an operator must fix."""

    facts: Facts
    loaded_at: float
    problem: str


class ReloadedTls:
    """TLS context of a server that is reloaded when its files change; polling begins with `start`.

    Properties may be read from any thread.

    Args:
        files: Files to load.
        look_s: Seconds between two polls.
        now: Function that returns seconds since the epoch.

    Raises:
        BadConfiguration: The files cannot be used now.
    """

    def __init__(
        self,
        files: TlsFiles,
        *,
        look_s: float = LOOK_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.files = files
        self._look_s, self._now = look_s, now
        self._handled = self._seen = _stamps(files)
        self._loaded, self._loaded_at = load(files), now()
        self._wrong = ""
        self._clients_changed: Callable[[], None] = lambda: None
        self._lock = threading.Lock()  # held during a poll
        self._wake, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="tls files", daemon=True)

    @property
    def context(self) -> ssl.SSLContext:
        """Context for the next connection."""
        return self._loaded.context

    @property
    def state(self) -> TlsState:
        """Certificate in use, and problems with it or with newer files."""
        return TlsState(self._loaded.facts, self._loaded_at, self._wrong or self._validity_problem())

    def start(self, clients_changed: Callable[[], None]) -> None:
        """Start polling. `clients_changed`: callback, on another thread, when the trusted clients have changed."""
        self._clients_changed = clients_changed
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, and end the thread."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Poll at once; may be called by signal handlers."""
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            requested = self._wake.wait(self._look_s)
            self._wake.clear()
            if not self._ended:
                self.look(at_once=requested)

    def look(self, *, at_once: bool = False) -> bool:
        """Load changed files. Return whether they are in use now.

        A change is loaded only if it is unchanged since the previous poll, because two files are written one after the
        other. `at_once`: load it at once, as a user has confirmed that all files are written.
        """
        with self._lock:
            stamp = _stamps(self.files)
            if stamp == self._handled:
                return False
            rested, self._seen = stamp == self._seen, stamp
            return self._load_changed(stamp) if rested or at_once else False

    def _load_changed(self, stamp: _Stamps) -> bool:
        """Load the files. Return whether they are in use now."""
        try:
            loaded = load(self.files)
            if loaded.facts.not_after <= self._now() < self._loaded.facts.not_after:
                raise BadConfiguration(
                    f"{self.files.certificate}: the certificate has expired",
                    remedy="replace it by a valid one",
                )
        except MesosGpuError as error:
            self._handled = stamp
            self._wrong = f"new TLS files are not used, the earlier ones are: {error.what}"
            logger.error("%s; to fix: %s", self._wrong, error.remedy)
            return False
        if _stamps(self.files) != stamp:
            return False  # the files were written meanwhile: the next poll loads them
        clients = _of_clients(self.files, stamp) != _of_clients(self.files, self._handled)
        self._loaded, self._loaded_at, self._handled, self._wrong = loaded, self._now(), stamp, ""
        logger.info("new TLS files are used: %s", loaded.facts.subject)
        if clients:
            self._clients_changed()
        return True

    def _validity_problem(self) -> str:
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
    return tuple(file_stamp for path, file_stamp in zip(files.paths, stamp, strict=True) if path not in own)
