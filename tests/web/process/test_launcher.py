"""What the pages of all tests rely on in their browser."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from isolator.host import processes
from tests.web.browser import NEEDED, Browser

pytestmark = [NEEDED, pytest.mark.long]


def test_launcher_hides_interfaces_that_come_and_go(browser: Browser) -> None:
    browser.page("about:blank")
    pids = processes.descendants(browser.pid)
    assert len(pids) > 2  # renderers, and what speaks to the network
    opened = _sockets([browser.pid, *pids])
    assert opened
    netlink = {line.split()[-1] for line in Path("/proc/net/netlink").read_text().splitlines()[1:]}
    assert not opened & netlink


def _sockets(pids: Iterable[int]) -> set[str]:
    """Inodes of the sockets that these processes have open."""
    links = set()
    for path in (each for pid in pids for each in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.add(os.readlink(path))
    return {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
