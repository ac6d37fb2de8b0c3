"""A task cannot reach the metadata addresses of clouds by any way.

All of it is in a network namespace without a way out: the addresses and what answers there are the test's own.
"""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolator.confinement.fence import Fence, fence_for
from isolator.host.control_ports import Denial, metadata_denials
from mesos_gpu.model.nodes.control import METADATA
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel
CLOUD = Path(__file__).with_name("cloud.py")
LINK_LOCAL = ("169.254.169.254", "169.254.170.2", "169.254.0.1", "169.254.255.254", "fe80::a9fe:a9fe")
NEAR = ("169.253.255.255", "169.255.0.1", "100.100.100.201", "fec0::1", "64:ff9b::a9ff:1")
NAT64 = "64:ff9b::a9fe:a9fe"
HERE = (*LINK_LOCAL, *METADATA, *NEAR, NAT64)


@contextmanager
def fenced(env: dict[str, str], resolv_conf: Path) -> Iterator[Fence]:
    """A cgroup with the rules for metadata, and with one for a port so that there always are rules."""
    needs("cgroup2")
    denied = (Denial(1), *metadata_denials(env, str(resolv_conf)))
    fence = fence_for(f"metadata-{os.getpid()}", denied)
    assert fence is not None
    fence.set_up()
    try:
        yield fence
    finally:
        fence.cgroup.remove()


def reached(fence: Fence, *targets: str) -> dict[str, dict[str, int]]:
    """Return the result of each way to each target, in a namespace with all addresses of HERE."""
    words = [sys.executable, str(CLOUD), str(fence.cgroup.path), ",".join(HERE), *targets]
    done = subprocess.run(["unshare", "-n", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results: dict[str, dict[str, int]] = json.loads(done.stdout)
    return results


def at_80(address: str) -> str:
    return f"{address}@80"


def test_metadata_address_is_reached_by_no_way(tmp_path: Path) -> None:
    mapped = [f"::ffff:{address}" for address in (*LINK_LOCAL, *METADATA) if ":" not in address]
    denied = [*map(at_80, (*LINK_LOCAL, *METADATA, NAT64)), *map(at_80, mapped)]
    with fenced({}, tmp_path / "none") as fence:
        results = reached(fence, *denied, *map(at_80, NEAR))
    for target in denied:
        tried = {way: number for way, number in results[target].items() if not way.startswith("listen")}
        assert len(tried) == 9
        assert set(tried.values()) == {errno.EPERM}, (target, tried)
    for target in map(at_80, NEAR):
        tried = results[target]
        assert {tried[way] for way in ("tcp", "mptcp", "udp", "udp connected")} == {0}, (target, tried)


def test_metadata_address_that_the_operator_allows_is_reached(tmp_path: Path) -> None:
    """This shows that the EPERM of the test above comes from the rules."""
    mapped = "::ffff:169.254.169.254"
    with fenced({"MESOS_GPU_METADATA": "allow"}, tmp_path / "none") as fence:
        results = reached(fence, *map(at_80, (*LINK_LOCAL, *METADATA, NAT64, mapped)))
    assert set(results.pop("fe80::a9fe:a9fe@80").values()) - {0} == {errno.EINVAL}, "it names no interface"
    for target, tried in results.items():
        assert {tried[way] for way in ("tcp", "mptcp", "udp", "udp connected")} == {0}, (target, tried)


def test_a_name_server_at_a_metadata_address_answers_for_names_only(tmp_path: Path) -> None:
    """On hosts of some clouds the metadata address is the only name server."""
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("search example\nnameserver 169.254.169.254\nnameserver 10.0.0.2\noptions edns0\n")
    with fenced({}, resolv_conf) as fence:
        results = reached(
            fence,
            "way=udp",
            "169.254.169.254@53",
            "::ffff:169.254.169.254@53",
            "169.254.169.254@80",
            "169.254.170.2@53",
        )
    assert [tried["udp"] for tried in results.values()] == [0, 0, errno.EPERM, errno.EPERM]
