"""How many proofs were wrong, for who watches this scheduler."""

from typing import Final

from mesos_gpu.access import proofs
from mesos_gpu.api.http.door import Counts

HEADERS: Final = "headers"  # of no kind that is known
SESSION: Final = "session"
WRONG: Final = Counts((*(kind.value for kind in proofs.ORDER), SESSION, HEADERS))  # of this process, by kind
