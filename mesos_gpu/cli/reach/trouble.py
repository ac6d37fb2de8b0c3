"""Messages for TLS errors, with the file or option to fix."""

import ssl
from collections.abc import Iterable
from typing import Final

from mesos_gpu.adapters.tls.trust import ENDED, OTHER_NAME, PLAIN
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.errors import MesosGpuError

# Codes of OpenSSL's x509_vfy.h.
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN: Final = frozenset({2, 7, 18, 19, 20, 21})
_OLD: Final = ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION")
#: Alerts about the client certificate, by the end of OpenSSL's reason texts (RFC 8446, section 6).
_ALERTS: Final = {
    "ALERT_CERTIFICATE_REQUIRED": "requires a client certificate, and none was sent",
    "ALERT_CERTIFICATE_EXPIRED": "refused the client certificate: it has expired",
    "ALERT_CERTIFICATE_REVOKED": "refused the client certificate: it is revoked",
    "ALERT_UNKNOWN_CA": "refused the client certificate: its authority is not trusted",
}
_SHOW: Final = "use a valid one with --cert and --key (or MESOS_GPU_CERT, MESOS_GPU_KEY)"
CLOSED_REMEDY: Final = (
    "if the scheduler requires client certificates, give one with --cert and --key (or MESOS_GPU_CERT, "
    "MESOS_GPU_KEY); one that was sent may be revoked, expired or of another authority, see the scheduler's log"
)


class NotProved(MesosGpuError):
    """The server cannot prove that it is the scheduler, or TLS fails."""

    exit_code = 76


def of_tls(reach: Reach, causes: Iterable[BaseException]) -> MesosGpuError | None:
    """Return the error for TLS failures among `causes`, outermost first; None if retrying may help."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _not_believed(reach, cause)
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ENDED):
            return _not_spoken(reach, cause.reason or str(cause))
    return None


def _not_believed(reach: Reach, error: ssl.SSLCertVerificationError) -> NotProved:
    """Return the error for a server certificate that cannot be verified."""
    what, code = f"the certificate at {reach.url}", error.verify_code
    if code == _EXPIRED:
        return NotProved(f"{what} has expired", remedy="renew the certificate of the scheduler's --tls-cert")
    if code == _NOT_YET:
        return NotProved(f"{what} is not valid yet", remedy="check the clocks of both machines")
    if code in OTHER_NAME:
        return NotProved(
            f"{what} is for another name: {error.verify_message}",
            remedy="use the certificate's name in --url, or create a certificate for the name in use",
        )
    if code in _UNKNOWN:
        source = (
            f"the authorities in {reach.cacert}" if reach.cacert else "the authorities that this host trusts"
        )
        return NotProved(
            f"{what} does not come from {source}",
            remedy="give the PEM file of the authority that signed it with --cacert or MESOS_GPU_CACERT",
        )
    return NotProved(f"{what} cannot be verified: {error.verify_message}", remedy="see docs/tls.md")


def _not_spoken(reach: Reach, reason: str) -> NotProved:
    """Return the error for a failed TLS handshake."""
    if reason in PLAIN:
        plain = reach.url.replace("https://", "http://", 1)
        return NotProved(
            f"the server at {reach.url} does not use TLS", remedy=f"use {plain} if that is intended"
        )
    if reason in _OLD:
        return NotProved(
            f"the server at {reach.url} supports only obsolete versions of TLS ({reason})",
            remedy="TLS 1.2 or later is needed: fix the proxy or load balancer in between",
        )
    for end, why in _ALERTS.items():
        if reason.endswith(end):
            return NotProved(f"the scheduler at {reach.url} {why}", remedy=_SHOW)
    return NotProved(f"TLS with {reach.url} failed: {reason}", remedy=CLOSED_REMEDY)
