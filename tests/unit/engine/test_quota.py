"""Quotas of one user or queue on the scheduler itself."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.apps.history import MAX_ROOTS, MAX_VERSION_BYTES
from mesos_gpu.engine.queue.quota import MIB, check_apps, size_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import TooMuch
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.quota import Quota
from tests.doubles.builders import World, offer, saved_of, spec


def world_of(user: Quota = Quota(), queue: Quota = Quota(), **more: object) -> World:  # noqa: B008
    settings = Settings.of("executor", "monitor", user_quota=user, queue_quota=queue, **more)
    world = World(settings)
    world.register()
    return world


def counted(state: State) -> dict[tuple[str, str], tuple[int, int]]:
    """From the jobs themselves."""
    uses: dict[tuple[str, str], tuple[int, int]] = {}
    for job in state.work.jobs.values():
        for key in (("user", job.spec.user or ""), ("queue", job.spec.queue)):
            pending, size = uses.get(key, (0, 0))
            uses[key] = pending + (job.state.value == "pending"), size + size_of(job.spec)
    return uses


def test_jobs_that_wait_are_counted_by_user_and_by_queue() -> None:
    world = world_of(Quota(pending=2), Quota(pending=3))
    world.submit("a1", user="ann")
    world.submit("a2", user="ann")
    with pytest.raises(TooMuch, match=r"user ann: 3 jobs would be pending, and 2 are allowed") as refused:
        world.submit("a3", user="ann")
    assert (refused.value.http_status, refused.value.exit_code) == (429, 75)
    assert "--user-pending" in refused.value.remedy
    world.submit("b1", user="bob")
    with pytest.raises(
        TooMuch, match=r"queue default: 4 jobs would be pending, and 3 are allowed"
    ) as refused:
        world.submit("b2", user="bob")
    assert "--queue-pending" in refused.value.remedy
    world.submit("b2", user="bob", queue="other")
    assert sorted(world.state.work.jobs) == ["a1", "a2", "b1", "b2"]
    world.offers(offer("o1", cpus=100))  # all start: others may wait
    world.submit("a3", user="ann")
    world.feed(ev.KillRequested(JobId("a3")))
    assert {key: (use.pending, use.size) for key, use in world.state.quota.uses.items()} == counted(
        world.state
    )


def test_quota_of_a_name_covers_all_users_that_it_runs_as() -> None:
    world = world_of(Quota(pending=2))
    for user in ("u1", "u2"):
        world.feed(ev.JobSubmitted(JobId(user), spec(user=user), "ann"))
    with pytest.raises(TooMuch, match=r"name ann: 3 jobs would be pending, and 2 are allowed") as refused:
        world.feed(ev.JobSubmitted(JobId("u3"), spec(user="u3"), "ann"))
    assert "--user-pending" in refused.value.remedy
    world.feed(ev.JobSubmitted(JobId("u3"), spec(user="u3"), "bob"))
    world.feed(ev.KillRequested(JobId("u1")))
    world.feed(ev.JobSubmitted(JobId("u4"), spec(user="u4"), "ann"))
    assert world.state.quota.uses["name", "ann"].pending == 2


def test_quota_of_a_name_does_not_bar_others_of_the_default_user() -> None:
    world = world_of(Quota(pending=2, stored_mib=1))
    for job in ("m1", "m2"):
        world.feed(ev.JobSubmitted(JobId(job), spec(env={"X": "x" * (MIB * 4 // 10)}), "mallory"))
    with pytest.raises(TooMuch, match="name mallory"):
        world.feed(ev.JobSubmitted(JobId("m3"), spec(), "mallory"))
    world.feed(ev.JobSubmitted(JobId("v1"), spec(env={"X": "x" * (MIB * 4 // 10)}), "victor"))
    apps = [App(f"/{n}", owner=n, cmd="true", instances=2) for n in ("mallory", "victor")]
    check_apps(world.settings, apps[:1], apps)


def test_instances_of_a_name_s_apps_have_one_limit() -> None:
    settings = Settings.of("executor", "monitor", user_quota=Quota(pending=5))
    few = App("/a", user="u1", owner="ann", cmd="true", instances=3)
    more = App("/b", user="u2", owner="ann", cmd="true", instances=3)
    check_apps(settings, [], [few])
    check_apps(settings, [], [few, replace(more, owner="bob")])
    with pytest.raises(TooMuch, match=r"apps of name ann: 6 jobs would be pending, and 5 are allowed"):
        check_apps(settings, [few], [few, more])


def test_definitions_of_a_name_s_apps_have_one_limit_though_no_instance_is_wanted() -> None:
    settings = Settings.of("executor", "monitor", user_quota=Quota(stored_mib=1))
    one, two = (
        App(id, owner="ann", cmd="true", instances=0, env={"X": "x" * (MIB * 6 // 10)}) for id in ("/a", "/b")
    )
    check_apps(settings, [], [one, replace(two, owner="bob")])
    with pytest.raises(
        TooMuch, match=r"definitions of apps of name ann: 1\.2 MiB would be stored, and 1 MiB are allowed"
    ):
        check_apps(settings, [one], [one, two])
    check_apps(settings, [one, two], [one, replace(two, env={})])
    check_apps(settings, [one, two], [one, two, App("/c", owner="bob", cmd="true", instances=0)])


def test_versions_of_an_app_are_kept_up_to_a_size() -> None:
    world = world_of()
    for number in range(MAX_ROOTS + 20):
        app = App("/a", cmd=f"true {number}", instances=0, env={"X": "x" * 100_000})
        world.feed(ev.AppsChanged(f"d{number}", Group("/", (app,))))
        world.tick(3)
    for number in range(MAX_ROOTS + 1):
        app = App(f"/b{number}", cmd="true", instances=0)
        world.feed(ev.AppsChanged(f"e{number}", Group("/", (*world.state.apps.catalog.root.apps, app))))
        world.tick(3)
    world.feed(
        ev.AppsChanged("last", Group("/", (replace(world.state.apps.catalog.root.apps[0], cmd="true"),)))
    )
    versions = world.state.apps.app_versions["/a"]
    assert sum(size_of(each.app) for each in versions[:-1]) <= MAX_VERSION_BYTES + 200_000
    assert len(versions) > 2


def test_bytes_are_counted_as_long_as_a_job_is_remembered() -> None:
    world = world_of(Quota(stored_mib=1), keep_ended_jobs=1)
    large = {"env": {"X": "x" * (MIB * 6 // 10)}}
    world.submit("j1", **large)
    with pytest.raises(TooMuch, match=r"the default user: 1\.2 MiB would be stored, and 1 MiB are allowed"):
        world.submit("j2", **large)
    world.feed(ev.KillRequested(JobId("j1")))
    with pytest.raises(TooMuch):
        world.submit("j2", **large)
    world.submit("j3")
    world.feed(ev.KillRequested(JobId("j3")))
    world.tick(1)
    assert JobId("j1") not in world.state.work.jobs
    world.submit("j2", **large)
    assert {key: (use.pending, use.size) for key, use in world.state.quota.uses.items()} == counted(
        world.state
    )


def test_quota_counts_are_the_same_after_a_restart() -> None:
    world = world_of()
    for n in range(4):
        world.submit(f"j{n}", user=f"u{n % 2}")
    world.feed(ev.KillRequested(JobId("j0")))
    again = State.restored(world.now, saved_of(world.state))
    assert (again.quota.uses, again.quota.sizes) == (world.state.quota.uses, world.state.quota.sizes)


def test_quota_bounds_the_apps_of_the_default_user() -> None:
    world = world_of(Quota(pending=10))
    web = App("/web", cmd="serve", instances=8, port_definitions=())
    world.feed(ev.AppsChanged("d1", Group("/", (web,))))
    with pytest.raises(
        TooMuch, match="apps of the default user: 16 jobs would be pending, and 10 are allowed"
    ):
        world.feed(ev.AppsChanged("d2", Group("/", (web, replace(web, id="/api"))), force=True))
    assert [app.id for app in world.state.apps.catalog.root.all_apps()] == ["/web"]
    fewer = world_of(Quota(pending=4))
    fewer.state.apps.catalog = replace(world.state.apps.catalog)
    fewer.feed(
        ev.AppsChanged("d4", Group("/", (replace(web, instances=6),)), force=True)
    )  # less than there is
    large = replace(web, id="/large", env={"X": "x" * MIB})
    with pytest.raises(
        TooMuch, match=r"/large of the default user: 8\.0 MiB would be stored, and 4 MiB are allowed"
    ):
        world_of(Quota(stored_mib=4)).feed(ev.AppsChanged("d3", Group("/", (large,))))


def test_quota_without_a_limit_bounds_nothing() -> None:
    world = world_of()
    for n in range(50):
        world.feed(ev.JobSubmitted(JobId(f"j{n}"), spec()))
    assert len(world.state.work.jobs) == 50
