"""`mesos-gpu cluster apply` of a file that has less: a scheduler, then one of three hosts with master and ZooKeeper,
then the next, while a job runs.
"""

import json

import pytest

from tests.conftest import wait_until
from tests.e2e.mesos.test_cluster_apply import INVENTORY, Described
from tests.e2e.mesos.test_cluster_apply import described as described
from tests.e2e.mesos.test_cluster_apply import pytestmark as of_hosts
from tests.remote.hosts import write_file

pytestmark = [
    *(each for each in of_hosts if each.name != "timeout"),
    pytest.mark.long,
    pytest.mark.timeout(2400),  # five times services are started anew, one host after the other
]
QUORUM = "zookeeper, master"
#: What has to be gone of a role that left.
PLACES = "/etc /usr/lib /opt/mesos-gpu /var/log/mesos-gpu"


def describe(described: Described, **roles: str) -> None:
    """Write the file: what each host does. Who is not named leaves."""
    agent = f"gpus: 2, settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
    hosts = {}
    for name, each in roles.items():
        more = [f"roles: [{each}]"]
        more += [described.of_scheduler(name)] if "scheduler" in each else []
        more += [agent] if "agent" in each else []
        hosts[name] = (described.hosts[name], ", ".join(more))
    top = f"zookeeper_heap_mib: 96\nca: {described.authority.cert}\n"
    write_file(described.directory / "keys", described.file, hosts, top)


def see_it_works(described: Described, job: str, hosts: int) -> None:
    """A second apply changes nothing, what ran runs on, and something new runs."""
    again = described.applied()
    assert again.count("nothing to change") == hosts, again
    shown = json.loads(described.mesos_gpu("show", job, "--json"))
    assert (shown["state"], shown["launches"]) == ("running", 1), shown
    assert "it works" in described.mesos_gpu("run", "--gpus", "1", "--cpus", "0.1", "--", "echo", "it works")


def see_it_left(described: Described, name: str, *roles: str) -> None:
    """See that services neither run nor start with their host, and none of their files is there."""
    host = described.hosts[name]
    for role in roles:
        unit = f"mesos-gpu-{role}.service"
        for question in ("is-active", "is-enabled"):
            assert host.run(f"systemctl {question} {unit}").code != 0, (name, question, unit)
        names = f"-name 'mesos-gpu-{role}*' -o -name '{role}.env'"
        there = host.run(f"find {PLACES} {names} 2>/dev/null").output
        assert [line for line in there.splitlines() if line.startswith("/")] == []


def test_cluster_apply_shrinks_a_cluster_host_by_host_under_a_job(described: Described) -> None:
    wait_until("its cards are there", lambda: described.mesos_gpu("gpus", "--json").count('"uuid"') == 2, 120)
    job = described.mesos_gpu(
        "run", "--detach", "--gpus", "1", "--cpus", "0.1", "--", "sleep", "3600"
    ).split()[0]
    wait_until(
        "it runs", lambda: json.loads(described.mesos_gpu("show", job, "--json"))["state"] == "running"
    )

    # One scheduler of two: the other one leads, and stays where both met, so that the first may come back.
    describe(described, a=f"{QUORUM}, scheduler", b=QUORUM, c=f"{QUORUM}, agent")
    assert "b: stays: /var/lib/mesos-gpu-scheduler\n" in described.applied()
    see_it_left(described, "b", "scheduler")
    wait_until("a leads", lambda: json.loads(described.mesos_gpu("leader", "--json"))["candidates"] == 1, 60)
    assert "--ha file:///etc/mesos-gpu/ha" in described.hosts["a"].text("/etc/mesos-gpu/scheduler.env")
    see_it_works(described, job, hosts=3)

    # Two masters of three at once: it is refused, and the remedy that is named is done.
    describe(described, a=f"{QUORUM}, scheduler", c="agent")
    refused = described.apply("--only", "files", "--only", "services")
    assert (
        refused.exit_code,
        "2 hosts of 3 with the role zookeeper would leave at once" in refused.output,
    ) == (78, True)
    assert "let at most 1 host leave, apply, and then the next" in refused.output
    describe(described, a=f"{QUORUM}, scheduler", c=f"{QUORUM}, agent")
    assert "Removed: b\n" in described.applied()
    see_it_left(described, "b", "master", "zookeeper")
    assert described.hosts["b"].run("ls /var/lib/mesos-gpu-zookeeper/version-2").code != 0, (
        "it would vote with that"
    )
    see_it_works(described, job, hosts=2)
    describe(described, a=f"{QUORUM}, scheduler", c="agent")
    described.applied()
    see_it_left(described, "c", "master", "zookeeper")
    see_it_works(described, job, hosts=2)

    described.mesos_gpu("kill", job)
