"""Whatever is submitted, ends and is offered again: what runs meets its constraints at every moment."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.policy.nodes.fields import value_of
from tests.doubles.builders import World, offer, spec

FIELDS = st.sampled_from(["hostname", "@zone", "rack"])
RULES = st.builds(
    lambda field, rule: Constraint(field, *rule),
    FIELDS,
    st.sampled_from([(Operator.UNIQUE, ""), (Operator.MAX_PER, "2"), (Operator.CLUSTER, "")]),
)
APPS = st.fixed_dictionaries({name: st.lists(RULES, max_size=2).map(tuple) for name in "xyz"})
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from("xyz"), st.sampled_from([None, None, "x", "y"])),
        st.tuples(st.just("end"), st.integers(0, 20), st.none()),
        st.tuples(st.just("offer"), st.integers(0, 4), st.none()),
    ),
    min_size=1,
    max_size=25,
)


def running(world: World) -> list[Job]:
    return [job for job in world.state.work.jobs.values() if job.task_id and not job.state.ended]


def hold(world: World, app: str, rule: Constraint) -> bool:
    tasks = [
        world.state.work.tasks[job.task_id] for job in running(world) if job.task_id and job.spec.app == app
    ]
    counts = Counter(value_of(rule.field, world.state.cluster.nodes[task.agent_id]) for task in tasks)
    if None in counts:
        return False
    if rule.operator is Operator.CLUSTER:
        return len(counts) <= 1
    return all(count <= (2 if rule.value else 1) for count in counts.values())


def keeps_apart(world: World) -> bool:
    tasks = world.state.work.tasks
    where = [(job.spec, tasks[job.task_id].hostname) for job in running(world) if job.task_id]
    return not any(
        a.away and a.away == b.app and at == there for a, at in where for b, there in where if a is not b
    )


@settings(max_examples=60)
@given(APPS, ACTS)
def test_instances_that_run_meet_their_constraints(
    apps: dict[str, tuple[Constraint, ...]], acts: list[tuple[str, object, str | None]]
) -> None:
    world = World()
    world.register()
    for number, (what, which, away) in enumerate(acts):
        if what == "submit":
            app = str(which)
            asked = spec(
                app=app, constraints=apps[app], away=away if away != app else None, cpus=0.1, mem_mib=32
            )
            world.feed(ev.JobSubmitted(JobId(f"j{number}"), asked))
        elif what == "offer":
            n = int(str(which))  # the last agent has neither rack nor zone
            place = {"zone": f"z{n % 2}", "attributes": {"rack": f"r{n // 2}"}} if n < 4 else {}
            world.offers(replace(offer(f"o{number}", f"a{n}"), **place))  # type: ignore[arg-type]
        elif jobs := running(world):
            job = jobs[int(str(which)) % len(jobs)]
            agent = world.state.work.tasks[job.task_id].agent_id if job.task_id else ""
            world.status(f"{job.id}.1", "TASK_FINISHED", agent=agent, outcome=Outcome(exit_status=0))
        assert all(hold(world, app, rule) for app, held in apps.items() for rule in held)
        assert keeps_apart(world)
