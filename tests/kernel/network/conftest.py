"""Network of tests that bind ports by their numbers, or see that nothing is at a port."""

import ctypes
import os
import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def own_network() -> Iterator[None]:
    """Run a test in a network namespace of its own: other processes of tests use ports of the host."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a network namespace")
    libc, flag = ctypes.CDLL(None), 0x40000000  # CLONE_NEWNET
    with open("/proc/thread-self/ns/net", "rb") as home:
        assert libc.unshare(flag) == 0
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert libc.setns(home.fileno(), flag) == 0
