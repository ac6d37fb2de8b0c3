"""What tests of one view alone look through."""

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.model.access.caller import ANYBODY
from mesos_gpu.model.access.document import AccessDocument

ALL_SEEING = Sight(Rights(AccessDocument(), ANYBODY))  # nobody is asked who they are
