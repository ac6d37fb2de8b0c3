"""Counts of wrong proofs, for metrics."""

from typing import Final

from mesos_gpu.access import proofs
from mesos_gpu.api.http.door import Counts

HEADERS: Final = "headers"  # headers that hold no proof of a known kind
SESSION: Final = "session"  # cookies of sessions
#: Wrong proofs since the process began, by kind.
WRONG: Final = Counts((*(kind.value for kind in proofs.ORDER), SESSION, HEADERS))
