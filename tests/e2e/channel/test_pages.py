"""Terminals on the page of a job: on its host, by rank and in an image, and by https for who has logged in."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesos_gpu.adapters.tls.here import TlsHere
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.certificates import Authority
from tests.clients import client_of, rule, said
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.e2e.channel.test_exec import nap, of_this
from tests.web.browser import NEEDED, Browser
from tests.web.conftest import browser, started  # noqa: F401  fixtures
from tests.web.terminals import prompted, shown_lines, typed

pytestmark = [pytest.mark.cluster, pytest.mark.long, NEEDED]
IMAGE = "plain:1"
IMAGES = not dockerd.missing()
APPLETS = ["sh", "cat", "echo", "id", "ls", "sleep"]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    """Whoever comes by https has to log in, and who started it is known by its socket."""
    (made := open_directory / "ca").mkdir()
    ca = Authority(made)
    own = ca.server()
    for path in (made, own.cert.parent, own.cert):
        path.chmod(0o755 if path.is_dir() else 0o644)  # executors believe it, whoever they run as
    images = open_directory / "images"
    images.mkdir()
    if IMAGES:
        save(images, IMAGE, [busybox_layer(dockerd.busybox(), APPLETS)], {"Env": ["PATH=/bin"]})
    with Stack(
        open_directory / "stack",
        [NodeSpec(2)],
        images=images if IMAGES else None,
        devices="mesos" if IMAGES else "",
        secure=True,
        tls=TlsHere.of(own.cert, own.key),
    ) as running:
        rule(running, open_directory)
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 2) as client:
        yield client


@contextmanager
def running(client: Client, **asked: object) -> Iterator[str]:
    """A job while it runs."""
    job = client.submit(
        {"command": "echo $$; exec sleep 3600", "gpus": 1, "cpus": 0.1, "mem_mib": 64, **asked}
    )
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    yield job["id"]
    client.kill(job["id"])
    wait_until("it has ended", lambda: client.job(job["id"])["ended_at"])


def test_a_terminal_by_https_carries_what_is_typed_and_ends_with_the_session(
    stack: Stack,
    client: Client,
    browser: Browser,  # noqa: F811
) -> None:
    with running(client, name="host", env={"GREETING": "hello"}) as job:
        page = browser.page(f"{stack.url}/#/jobs/{job}", any_certificate=True)
        page.fill("input[name=token]", said(stack, "token", "create"))
        page.click("button", "Log in with it")
        prompted(page)
        typed(page, "stty size")
        wait_until("it has a size", lambda: re.search(r"^\d+ \d+$", shown_lines(page), re.MULTILINE))
        typed(page, "echo $GREETING-$((6*7))")
        wait_until("it has answered", lambda: "hello-42" in shown_lines(page))
        typed(page, "exit 5")
        page.when("It has ended with exit code 5.")
        prompted(page)
        typed(page, f"exec sleep {nap(86431)}")
        wait_until("it sleeps", lambda: of_this(nap(86431)))
        said(stack, "token", "revoke", *said(stack, "token", "list", "-q").split())
        page.when("Log in with it", "Your session has ended. Log in again to go on where you were.")
        wait_until("nothing is left of it", lambda: not of_this(nap(86431)))


@pytest.mark.skipif(not IMAGES, reason=f"needs images, an engine and a static busybox: {dockerd.missing()}")
def test_a_terminal_in_a_rank_of_a_gang_in_an_image(stack: Stack, client: Client, browser: Browser) -> None:  # noqa: F811
    with running(client, name="gang", tasks=2, image=IMAGE, container_engine="mesos") as job:
        page = browser.page(f"{stack.url}/#/jobs/{job}", any_certificate=True)
        page.fill("input[name=token]", said(stack, "token", "create"))
        page.click("button", "Log in with it")
        page.when("rank 1 on ")
        page.fill("#view select[aria-label='Task of the terminal']", "1")
        prompted(page)
        typed(page, "echo rank-$RANK-of-$WORLD_SIZE; ls /; exit 7")
        page.when("It has ended with exit code 7.")
        wanted = {"rank-1-of-2", "bin", "mnt"}
        wait_until("it is drawn", lambda: wanted <= set(shown_lines(page).split()))
        assert "home" not in shown_lines(page).split(), "the image's files, not the host's"
