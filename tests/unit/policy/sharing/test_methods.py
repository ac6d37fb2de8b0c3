"""Methods that enforce a share, and texts of their refusals."""

from dataclasses import replace

import pytest

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.card import Ability, MigInstance, Sharing
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.share import EVERYBODY, Method, Share, guarantee
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.sharing.methods import choose, times
from mesos_gpu.policy.sharing.parts import unshared
from tests.doubles.builders import gpu

MIG, DMEM, MISC, MPS3, MPS2, SHIM = Ability
QUARTER = ShareRequest(250, 250)
ALL = (DMEM, MISC, MPS3, MPS2, SHIM)


def card(*usable: Ability, mig: bool = False, instances: tuple[MigInstance, ...] = ()) -> Gpu:
    abilities = tuple((each, "" if each in usable else f"no {each.value} here") for each in Ability)
    return replace(gpu("g0"), sharing=Sharing(80_000, abilities, mig=mig, instances=instances))


def granted(answer: Share | str) -> Share:
    assert isinstance(answer, Share), answer
    return answer


def refused(answer: Share | str) -> str:
    assert isinstance(answer, str), answer
    return answer


@pytest.mark.parametrize(
    ("usable", "method"),
    [
        (ALL, Method.DMEM_MPS3),
        ((MISC, MPS3, MPS2, SHIM), Method.MISC_MPS3),
        ((DMEM, MISC, MPS2, SHIM), Method.DMEM_WINDOWS),
        ((MISC, MPS2, SHIM), Method.MISC_WINDOWS),
        ((MPS3, MPS2, SHIM), Method.SHIM_MPS2),
        ((MPS3, SHIM), Method.SHIM_WINDOWS),
        ((DMEM, MPS2), Method.TURNS),
        ((), Method.TURNS),
    ],
)
def test_method_is_the_best_that_the_host_can_do(usable: tuple[Ability, ...], method: Method) -> None:
    wanted = replace(QUARTER, isolation=Isolation.ANY)
    share = granted(choose(wanted, card(*usable), None, "alice"))
    assert share.method is method
    assert (share.compute_milli, share.memory_mib, share.memory_max_mib) == (250, 20_000, 20_000)
    assert share.domain == ("alice" if "mps" in method.value else "")


@pytest.mark.parametrize("user", [None, "root", "0", ""])
def test_mps_is_not_for_a_task_that_may_be_root(user: str | None) -> None:
    assert granted(choose(QUARTER, card(*ALL), None, user)).method is Method.DMEM_WINDOWS
    assert granted(choose(QUARTER, card(MPS2, SHIM), None, user)).method is Method.SHIM_WINDOWS
    assert "may be root" in refused(choose(QUARTER, card(DMEM, MPS3), None, user))


def test_mps_is_not_for_shares_of_several_cards() -> None:
    """A process reaches one daemon, and a daemon is of one card."""
    assert granted(choose(QUARTER, card(*ALL), None, "alice", cards=2)).method is Method.DMEM_WINDOWS
    assert granted(choose(QUARTER, card(MPS2, SHIM), None, "alice", cards=2)).method is Method.SHIM_WINDOWS
    assert "shares of several cards" in refused(choose(QUARTER, card(DMEM, MPS3), None, "alice", cards=2))


def test_card_is_full_by_clients_of_mps() -> None:
    """Each share needs one, however small it is."""
    served, tiny = card(MPS2, SHIM), ShareRequest(10, memory_mib=100)
    assert served.sharing is not None
    served = replace(served, sharing=replace(served.sharing, mps_clients=3))
    assert times(tiny, served, None, "alice") == 3
    free = unshared(served)
    for _ in range(3):
        free = free.less(granted(choose(tiny, served, free, "alice")))
    assert refused(choose(tiny, served, free, "alice")) == (
        "has no free MPS client: its server accepts 3, and 3 shares use one"
    )
    assert times(tiny, served, free, "alice") == 0
    share = Share(10, 100, 100, Method.SHIM_MPS2, "alice")
    assert granted(choose(tiny, served, free.more(share, unshared(served)), "alice")) == share
    by_turns = free.less(Share(10, 100, 100, Method.SHIM_WINDOWS))
    assert times(tiny, card(SHIM), by_turns, None) > 3


def across(*usable: Ability) -> Gpu:
    """A card whose host permits several users to have one server."""
    one = card(*usable)
    assert one.sharing is not None
    return replace(one, sharing=replace(one.sharing, mps_users=True))


def test_users_share_a_server_only_where_scheduler_and_host_permit_it() -> None:
    asked = replace(QUARTER, across_users=True)
    for request, there in ((QUARTER, across(MPS2, SHIM)), (asked, card(MPS2, SHIM))):
        first = granted(choose(request, there, None, "alice"))
        assert (first.method, first.domain) == (Method.SHIM_MPS2, "alice")
        words = refused(choose(request, there, unshared(there).less(first), "bob"))
        assert words == "is user alice's alone, as long as it has MPS shares"
    there = across(MPS2, SHIM)
    first = granted(choose(asked, there, None, "alice"))
    assert (first.domain, guarantee(first).faults) == (EVERYBODY, "card")
    free = unshared(there).less(first)
    assert granted(choose(asked, there, free, "bob")) == first
    words = refused(choose(QUARTER, there, free, "alice"))  # one whose scheduler does not permit it any more
    assert (
        words == "has shares of several users on one MPS server, and accepts only such shares until they end"
    )


def test_share_across_users_may_join_the_server_of_its_own_user() -> None:
    there = across(MPS2, SHIM)
    free = unshared(there).less(granted(choose(QUARTER, there, None, "alice")))
    asked = replace(QUARTER, across_users=True)
    assert granted(choose(asked, there, free, "alice")).domain == "alice"
    assert "is user alice's alone" in refused(choose(asked, there, free, "bob"))


@pytest.mark.parametrize("user", [None, "root", "0", ""])
def test_mps_server_admits_no_task_of_root_whatever_is_permitted(user: str | None) -> None:
    asked = replace(QUARTER, across_users=True)
    assert granted(choose(asked, across(MPS2, SHIM), None, user)).method is Method.SHIM_WINDOWS


def test_strict_share_never_has_another_users_beside_it() -> None:
    spec = JobSpec(name="strict", command="true", gpu_milli=250, gpus=1, isolation=Isolation.STRICT)
    asked = spec.share_request(Isolation.SHARED, across_users=True)
    assert asked is not None
    there = across(DMEM, MPS3)
    share = granted(choose(asked, there, None, "alice"))
    assert (share.domain, guarantee(share).faults) == ("alice", "user")
    shared = Share(250, 20_000, 20_000, Method.DMEM_MPS3, EVERYBODY)
    assert refused(choose(asked, there, unshared(there).less(shared), "alice")).startswith(
        "has shares of several users"
    )


def test_strict_wants_memory_that_hardware_kernel_or_driver_keeps() -> None:
    strict = replace(QUARTER, isolation=Isolation.STRICT)
    assert granted(choose(strict, card(DMEM, SHIM), None, None)).method is Method.DMEM_WINDOWS
    assert granted(choose(strict, card(MISC, MPS3), None, "alice")).method is Method.MISC_MPS3
    words = refused(choose(strict, card(MPS2, SHIM), None, "alice"))
    assert words == (
        "cannot enforce a share with isolation strict "
        "(dmem: no dmem here; mps3: no mps3 here; misc: no misc here)"
    )


def test_shared_is_not_content_with_equal_turns() -> None:
    assert "isolation shared" in refused(choose(QUARTER, card(DMEM), None, "alice"))


def test_host_that_says_nothing_of_sharing_has_no_shares() -> None:
    assert "reports no method" in refused(
        choose(replace(QUARTER, isolation=Isolation.ANY), gpu("g0"), None, "alice")
    )


def test_card_is_one_users_while_its_shares_are_kept_by_mps() -> None:
    mine = unshared(card(*ALL)).less(granted(choose(QUARTER, card(*ALL), None, "alice")))
    assert granted(choose(QUARTER, card(*ALL), mine, "alice")).domain == "alice"
    assert refused(choose(QUARTER, card(*ALL), mine, "bob")).startswith("is user alice's alone")
    assert "enforced by dmem+mps3" in refused(choose(QUARTER, card(*ALL), mine, None))


def test_first_share_of_a_card_decides_the_method_of_later_ones() -> None:
    of_root = unshared(card(*ALL)).less(granted(choose(QUARTER, card(*ALL), None, "root")))
    assert granted(choose(QUARTER, card(*ALL), of_root, "alice")).method is Method.DMEM_WINDOWS
    in_turns = unshared(card()).less(
        granted(choose(replace(QUARTER, isolation=Isolation.ANY), card(), None, "bob"))
    )
    assert "enforced by turns" in refused(choose(QUARTER, card(SHIM), in_turns, "bob"))


def test_equal_turns_are_counted_all_the_same() -> None:
    wanted, part = ShareRequest(100, memory_mib=30_000, isolation=Isolation.ANY), unshared(card())
    for _ in range(2):
        part = part.less(granted(choose(wanted, card(), part, None)))
    assert refused(choose(wanted, card(), part, None)) == (
        "is full by memory: 20000 MiB are free, and 30000 are asked for"
    )


def test_compute_is_never_promised_twice_unless_the_operator_says_so() -> None:
    wanted = ShareRequest(600, memory_mib=1_000)
    part = unshared(card(SHIM)).less(granted(choose(wanted, card(SHIM), None, None)))
    assert (
        refused(choose(wanted, card(SHIM), part, None))
        == "is full by compute: 40 % are free, and 60 % are asked for"
    )
    assert times(wanted, card(SHIM), None, None) == 1
    assert times(wanted, card(SHIM), None, None, compute_milli=2 * WHOLE) == 3


def test_24_shares_of_2000_mib_do_not_fit_on_46068() -> None:
    def most(mib_each: int, capacity_mib: int) -> int:
        host = replace(card(), sharing=Sharing(capacity_mib, ((SHIM, ""),)))
        return times(ShareRequest(10, memory_mib=mib_each), host, None, None)

    assert most(2_000, 46_068) == 23
    assert most(12 * 1024, 24 * 1024) == 2


def test_share_bursts_only_with_soft_limits() -> None:
    wanted = ShareRequest(250, memory_mib=10_000, memory_max_mib=90_000)
    assert granted(choose(wanted, card(DMEM, SHIM), None, None)).memory_max_mib == 80_000
    assert granted(choose(wanted, card(SHIM), None, None)).memory_max_mib == 10_000
    strict = replace(wanted, isolation=Isolation.STRICT)
    assert granted(choose(strict, card(DMEM, SHIM), None, None)).memory_max_mib == 10_000


def test_card_in_mig_mode_gives_its_instances_and_nothing_else() -> None:
    small = MigInstance("MIG-s", "1g.10gb", 9_728, 14, 1, 0, 142, 125, 0, 1)
    large = MigInstance("MIG-l", "2g.20gb", 19_968, 28, 2, 0, 285, 250, 2, 2)
    there = card(MIG, *ALL, mig=True, instances=(large, small))
    tenth = ShareRequest(100, 100)
    first = granted(choose(tenth, there, None, "root"))
    assert (first.method, first.instance, first.memory_mib, first.compute_milli) == (
        Method.MIG,
        "MIG-s",
        9_728,
        142,
    )
    second = granted(choose(tenth, there, unshared(there).less(first), "root"))
    assert second.instance == "MIG-l"
    full = unshared(there).less(first).less(second)
    assert "are taken" in refused(choose(tenth, there, full, "root"))
    assert times(tenth, there, None, "root") == 2
    assert "large enough" in refused(choose(ShareRequest(500, 500), there, None, "root"))
    assert "one card only" in refused(choose(tenth, there, None, "root", cards=2))
    assert "mig: no mig here" in refused(
        choose(tenth, card(*ALL, mig=True, instances=(small,)), None, "root")
    )


def test_share_larger_than_any_card_is_refused() -> None:
    assert refused(choose(ShareRequest(10, memory_mib=90_000), card(SHIM), None, None)) == (
        "has 80000 MiB for shares, and 90000 are asked for"
    )
