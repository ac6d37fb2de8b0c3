"""Events that a caller sees: only those of what its rights cover."""

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.sight.events import EventSight
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.event import EventKind, LogEvent

DOCUMENT = AccessDocument(
    version=1,
    bindings=(
        Binding(("root@corp",), (), ("admin",)),
        Binding(("ann",), (), ("user",), ("research",), ("/research/*",)),
    ),
)
OF_JOB = LogEvent(1, 1.0, EventKind.FAILED, JobId("j"), "ann", "ann", "research", message="it broke")
OF_APP = LogEvent(2, 2.0, EventKind.DEPLOYMENT, deployment="d", apps=("/research/a",))
OF_TWO = LogEvent(3, 3.0, EventKind.DEPLOYMENT, deployment="d", apps=("/research/a", "/other/b"))
OF_NONE = LogEvent(4, 4.0, EventKind.DEPLOYMENT, deployment="d", message="deployment d of no app: ended")


def seen_by(name: str) -> list[int]:
    sight = EventSight(Rights(DOCUMENT, Caller(name, frozenset(), Proof.TOKEN)))
    return [event.number for event in (OF_JOB, OF_APP, OF_TWO, OF_NONE) if sight.sees(event)]


def test_event_of_a_deployment_is_for_callers_who_see_all_its_apps() -> None:
    assert seen_by("root@corp") == [1, 2, 3, 4]
    assert seen_by("ann") == [1, 2]
    assert seen_by("nobody-bound") == []
