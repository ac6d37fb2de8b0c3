"""Which tasks may connect to abstract Unix sockets of others: those that get memory of cards from each other so."""

from dataclasses import replace

import pytest

from isolator.confinement import apart, apart_sys
from isolator.confinement.enclosure import Enclosure
from isolator.runs.run import Launch
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.assignment import Assignment

ALONE = Assignment("train", 1, command="true")
ENCLOSURE = Enclosure("c1", isolated=True, cgroup=None, devices=(), extra=(), gpu_major=195)


def share(method: Method) -> Share:
    return Share(compute_milli=500, memory_mib=1, memory_max_mib=1, method=method)


@pytest.mark.parametrize(
    ("plan", "reaches"),
    [
        (ALONE, False),
        (replace(ALONE, share=share(Method.DMEM_WINDOWS)), False),
        (replace(ALONE, share=share(Method.DMEM_MPS3)), True),
        (replace(ALONE, hosts=("a", "b")), True),
    ],
    ids=["a task of its own", "a share", "a share by MPS", "a rank of a gang"],
)
def test_abstract_sockets_are_reached_by_tasks_that_share_cards(plan: Assignment, reaches: bool) -> None:
    assert Launch(plan, "train.1", {}, ENCLOSURE).reaches_sockets is reaches


@pytest.mark.parametrize(("abi", "scoped"), [(0, False), (2, False), (5, False), (6, True), (7, True)])
def test_a_container_on_the_hosts_network_is_scoped_where_the_kernel_can(
    monkeypatch: pytest.MonkeyPatch, abi: int, scoped: bool
) -> None:
    for module in (apart, apart_sys):
        monkeypatch.setattr(module, "landlock_abi", lambda: abi)
    there = apart.apart_on_host_network({})
    assert there.domain is scoped
    assert not there.program, "the engine has a filter of its own"
    assert apart.apart_on_host_network({apart.FILTER: "off"}) == apart.NOT_APART
    if scoped:
        attributes, allowed = apart_sys.ruleset(signals=there.signals, sockets=there.sockets)
        assert (int.from_bytes(attributes[16:], "little"), allowed) == (1, 0), "sockets, not signals"
