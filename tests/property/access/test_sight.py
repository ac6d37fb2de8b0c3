"""What is judged once for many is what would be judged for each."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import APP_ENV, APP_READ, APP_SEE, JOB_READ, JOB_SEE, RIGHTS
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.api.sight.apps import subject_of as subject_of_app
from mesos_gpu.api.sight.jobs import Sight, subject_of
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from mesos_gpu.model.access.document import AccessDocument, Binding, Role, Shared
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from tests.property.access.test_access import APPS, NARROWINGS, QUEUES, RIGHT_TEXTS, SUBJECTS

SIGHTS = st.lists(
    st.sampled_from(["job:see", "job:see:own", "job:see:ml*", "job:read", "job:read:own", "job:run:own", "job:*",
                     "app:see", "app:see:/shop/*", "app:read:own", "app:env:own", "app:*", "*"]),
    min_size=1, max_size=3, unique=True,
).map(tuple)  # fmt: skip
OWNERS = st.sampled_from(["", "ann", "bob"])
PATHS = st.sampled_from(["/shop", "/shop/a", "/x"])


def job(owner: str, queue: str, app: str | None, *, is_instance: bool) -> Job:
    spec = JobSpec("j", "true", queue=queue, app=app)
    return Job(JobId("j"), spec, 0.0, 0, owner=owner, app_version=1.0 if is_instance and app else None)


JOBS = st.lists(
    st.builds(
        job, OWNERS, st.sampled_from(["ml", "ml-a", "web"]), st.none() | PATHS, is_instance=st.booleans()
    ),
    max_size=8,
)


def rights_of(
    rights: tuple[str, ...], queues: tuple[str, ...], apps: tuple[str, ...], narrowing: Narrowing | None
) -> Rights:
    document = AccessDocument(
        roles=(Role("r1", rights),),
        bindings=(Binding(("ann",), (), ("r1",), queues, apps),),
        shares={"ml": (Shared.JOBS,)},
    )
    return Rights(document, Caller("ann", proof=Proof.TOKEN, narrowing=narrowing))


@given(RIGHT_TEXTS | SIGHTS, QUEUES, APPS, st.integers(0, len(RIGHTS) - 1), SUBJECTS)
@settings(max_examples=250)
def test_a_right_for_everything_is_one_that_some_binding_gives(
    texts: tuple[str, ...],
    queues: tuple[str, ...],
    apps: tuple[str, ...],
    right: int,
    subject: Subject | None,
) -> None:
    document = AccessDocument(
        roles=(Role("r1", texts),), bindings=(Binding(("ann",), (), ("r1",), queues, apps),)
    )
    rights = Rights(document, Caller("ann", proof=Proof.TOKEN))
    given_by = rights.because(RIGHTS[right], subject)
    assert rights.may(RIGHTS[right], subject) == bool(given_by)
    if rights.may_always(RIGHTS[right]):
        assert given_by


@given(SIGHTS, QUEUES, APPS, st.none() | NARROWINGS, JOBS)
@settings(max_examples=250)
def test_jobs_are_seen_as_if_each_were_asked_about(
    texts: tuple[str, ...],
    queues: tuple[str, ...],
    apps: tuple[str, ...],
    narrowing: Narrowing | None,
    jobs: Sequence[Job],
) -> None:
    rights = rights_of(texts, queues, apps, narrowing)
    sight = Sight(rights)
    for each in [*jobs, *jobs]:
        assert sight.sees(each) == rights.may(JOB_SEE, subject_of(each))
        assert sight.reads(each) == rights.may(JOB_READ, subject_of(each))


@given(SIGHTS, QUEUES, APPS, st.none() | NARROWINGS, OWNERS, PATHS)
@settings(max_examples=250)
def test_apps_are_seen_as_if_each_were_asked_about(
    texts: tuple[str, ...],
    queues: tuple[str, ...],
    apps: tuple[str, ...],
    narrowing: Narrowing | None,
    owner: str,
    path: str,
) -> None:
    rights, app = rights_of(texts, queues, apps, narrowing), App(path, cmd="true", owner=owner)
    for right in (APP_SEE, APP_READ, APP_ENV):
        assert AppSight(rights).may(right, app) == rights.may(right, subject_of_app(app))
