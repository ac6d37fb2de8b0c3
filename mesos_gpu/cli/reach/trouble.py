"""What went wrong with TLS, in words, with the file or the option that mends it."""

import ssl
from collections.abc import Iterable
from typing import Final

from mesos_gpu.adapters.tls.trust import ENDED, OTHER_NAME, PLAIN
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.errors import MesosGpuError

# Of OpenSSL's x509_vfy.h.
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN: Final = frozenset({2, 7, 18, 19, 20, 21})
_OLD: Final = ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION")
#: What the other side thinks of our certificate, by how OpenSSL's words for its alerts end (RFC 8446, section 6).
_ALERTS: Final = {
    "ALERT_CERTIFICATE_REQUIRED": "asks for a certificate, and none was shown",
    "ALERT_CERTIFICATE_EXPIRED": "does not take the certificate that was shown: it has expired",
    "ALERT_CERTIFICATE_REVOKED": "does not take the certificate that was shown: it is revoked",
    "ALERT_UNKNOWN_CA": "does not take the certificate that was shown: it is of another authority",
}
_SHOW: Final = "show a good one with --cert and --key (or MESOS_GPU_CERT, MESOS_GPU_KEY)"
CLOSED_REMEDY: Final = (
    "where the scheduler asks for certificates, show one with --cert and --key (or MESOS_GPU_CERT, MESOS_GPU_KEY); "
    "one that was shown may be revoked, expired, or of another authority: the scheduler's log says which"
)


class NotProved(MesosGpuError):
    """What answers cannot prove that it is the scheduler, or does not speak TLS with us."""

    exit_code = 76


def of_tls(reach: Reach, causes: Iterable[BaseException]) -> MesosGpuError | None:
    """What `causes` mean, the outermost first; None: nothing that trying again does not mend."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _not_believed(reach, cause)
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ENDED):
            return _not_spoken(reach, cause.reason or str(cause))
    return None


def _not_believed(reach: Reach, error: ssl.SSLCertVerificationError) -> NotProved:
    what, code = f"the certificate at {reach.url}", error.verify_code
    if code == _EXPIRED:
        return NotProved(f"{what} has expired", remedy="renew what the scheduler's --tls-cert names")
    if code == _NOT_YET:
        return NotProved(f"{what} is not valid yet", remedy="look at the clocks of both machines")
    if code in OTHER_NAME:
        return NotProved(
            f"{what} is for another name: {error.verify_message}",
            remedy="name the scheduler in --url as its certificate does, or have a certificate made for that name",
        )
    if code in _UNKNOWN:
        whom = (
            f"the authorities in {reach.cacert}" if reach.cacert else "the authorities that this host trusts"
        )
        return NotProved(
            f"{what} does not come from {whom}",
            remedy="name the PEM file of the authority that signed it with --cacert or MESOS_GPU_CACERT",
        )
    return NotProved(f"{what} is not believed: {error.verify_message}", remedy="see docs/tls.md")


def _not_spoken(reach: Reach, reason: str) -> NotProved:
    if reason in PLAIN:
        plain = reach.url.replace("https://", "http://", 1)
        return NotProved(f"what answers at {reach.url} speaks no TLS", remedy=f"use {plain} if that is meant")
    if reason in _OLD:
        return NotProved(
            f"what answers at {reach.url} speaks no TLS of this decade ({reason})",
            remedy="the scheduler needs TLS 1.2 or later: correct the proxy or load balancer in between",
        )
    for end, why in _ALERTS.items():
        if reason.endswith(end):
            return NotProved(f"the scheduler at {reach.url} {why}", remedy=_SHOW)
    return NotProved(f"no TLS with {reach.url}: {reason}", remedy=CLOSED_REMEDY)
