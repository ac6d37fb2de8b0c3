"""The page of a Mesos master in a real browser, with a master and an agent that are played."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.conftest import wait_until
from tests.web.browser import NEEDED, Browser, Page, each_look, judged, not_seen, too_wide
from tests.web.mesos.played_mesos import SINCE_S, PlayedAgent, PlayedMaster, framework, labels, task

pytestmark = NEEDED
EVIL: Final = "<img src=x onerror=\"document.title='pwned'\">"
TASK: Final = "#/tasks/fw/t1"
PARTS: Final = {
    "overview": "#/",
    "agents": "#/agents",
    "agent": "#/agents/s1",
    "frameworks": "#/frameworks",
    "framework": "#/frameworks/fw",
    "tasks": "#/tasks",
    "ended": "#/tasks?state=completed",
    "task": TASK,
    "file": f"{TASK}?file=stdout",
    "none": "#/nowhere",
}
MODEL: Final = """Promise.all([import('/app/cluster.js'), fetch('/state').then((answer) => answer.json())])
.then(([{clusterOf}, state]) => {
  const {agents, frameworks, tasks} = clusterOf(state, {});
  return {
    agents: agents.map(({host, state, ip, port}) => [host, state, ip, port]),
    frameworks: frameworks.map(({id, state, roles}) => [id, state, roles]),
    tasks: tasks.map(({id, state, group, host, gpus, share, cards, began_at, ended_at}) =>
      [id, state, group, host, gpus, share, cards, began_at, ended_at]),
  };
})"""


@pytest.fixture
def agent() -> Iterator[PlayedAgent]:
    agent = PlayedAgent()
    yield agent
    agent.end()


@pytest.fixture
def master(agent: PlayedAgent) -> Iterator[PlayedMaster]:
    """A master of an agent with four GPUs and a framework with three tasks."""
    master = PlayedMaster()
    cards = labels(job="train-1", gpus="GPU-a,GPU-b", role="job")
    running = task(1, resources={"cpus": 1, "mem": 1024, "gpus": 2, "ports": "[31000-31000]"}, labels=cards)
    shared = task(2, labels=labels(job="part", gpus="GPU-c", gpu="GPU-c", share="0.25"))
    fw = framework(
        tasks=[running, shared], completed_tasks=[task(3, "TASK_FAILED")], labels=labels(role="scheduler")
    )
    master.state |= {"slaves": [agent.slave()], "frameworks": [fw]}
    yield master
    master.end()


def names(page: Page) -> list[str]:
    """Return the first column of the tables."""
    return list(
        page.run("[...document.querySelectorAll('#view tbody tr')].map((row) => row.cells[0].innerText)")
    )


def test_cluster_has_states_of_agents_frameworks_and_tasks(
    master: PlayedMaster, agent: PlayedAgent, browser: Browser
) -> None:
    agents = [
        agent.slave(),
        agent.slave(id="s2", hostname="b10", deactivated=True, drain_info={"state": "DRAINING"}),
        agent.slave(id="s3", hostname="b9", active=False),
        agent.slave(id="s4", hostname="c", deactivated=True),
    ]
    lost = task(4, "TASK_GONE_BY_OPERATOR", slave_id="gone")
    away = task(5, "TASK_UNREACHABLE")
    staging = task(6, "TASK_STAGING", statuses=[])
    first = framework(tasks=[staging, task(1)], unreachable_tasks=[away], completed_tasks=[lost])
    other = framework(id="old", active=False, connected=False, role="gpu", roles=None)
    master.state |= {
        "slaves": agents,
        "recovered_slaves": [{"id": "s5", "hostname": "d", "port": 5051}],
        "frameworks": [first, other],
        "completed_frameworks": [framework(id="done")],
    }
    model = browser.page(master.url).run(MODEL)
    port = agent.server_port
    assert model["agents"] == [
        ["127.0.0.11", "active", "127.0.0.11", port],
        ["b9", "disconnected", "127.0.0.11", port],
        ["b10", "draining", "127.0.0.11", port],
        ["c", "deactivated", "127.0.0.11", port],
        ["d", "recovered", None, 5051],
    ]
    assert model["frameworks"] == [
        ["fw", "active", ["*"]],
        ["old", "disconnected", ["gpu"]],
        ["done", "completed", ["*"]],
    ]
    began = SINCE_S + 60
    assert model["tasks"] == [
        ["t1", "running", "active", "127.0.0.11", 0, None, [], began, None],
        ["t6", "staging", "active", "127.0.0.11", 0, None, [], None, None],
        ["t5", "unreachable", "unreachable", "127.0.0.11", 0, None, [], began, None],
        ["t4", "gone by operator", "completed", "gone", 0, None, [], began, began + 60],
    ]


def test_page_shows_master_agents_frameworks_and_tasks_with_their_gpus(
    master: PlayedMaster, browser: Browser
) -> None:
    page = browser.page(master.url)
    html = page.when("led by m1.example:5050 · 2 of 4 GPUs in use · 1 agent")
    assert "<dt>Version</dt><dd>1.11.0</dd>" in html
    assert re.search(r"<tr><td[^>]*>failed</td><td[^>]*>2</td>", html)
    html = page.visit("#/agents")
    assert 'data-label="GPUs in use">2</td><td class="n" data-label="GPUs">4</td>' in html
    html = page.visit("#/agents/s1")
    assert 'data-label="Cards">GPU-a, GPU-b</td>' in html
    assert 'data-label="GPUs">0.25 of 1</td>' in html
    assert 'data-label="Reserved">gpu: 1</td>' in html
    html = page.visit("#/frameworks")
    assert 'href="http://127.0.0.1:8080" rel="noreferrer">open</a>' in html
    page.visit("#/tasks")
    assert names(page) == ["train-1", "train-2"]
    page.visit("#/tasks?state=completed")
    assert names(page) == ["train-3"]
    html = page.visit(TASK)
    assert "<dt>Cards</dt><dd>GPU-a, GPU-b</dd>" in html
    assert 'href="http://127.0.0.1:8080/#/jobs/train-1"' in html
    assert "has no such task" in page.visit("#/tasks/fw/none")
    assert not page.console


def test_names_of_tenants_are_shown_as_text(
    master: PlayedMaster, agent: PlayedAgent, browser: Browser
) -> None:
    evil = task(1, name=EVIL, labels=[{"key": EVIL, "value": EVIL}])
    master.state["frameworks"] = [framework(name=EVIL, webui_url="javascript:alert(1)", tasks=[evil])]
    master.state["slaves"] = [agent.slave(attributes={"rack": EVIL})]
    agent.files = {f"{EVIL[:8]}.txt": EVIL.encode()}
    page = browser.page(master.url)
    for address in ("#/", "#/agents/s1", "#/frameworks", "#/frameworks/fw", "#/tasks", TASK):
        html = page.visit(address)
        assert "<img" not in html
        assert 'href="javascript' not in html
    assert html.count("&lt;img src=x") == 5, "title of the document, head, framework, label and its value"
    page.click("#view a", ".txt")
    page.when("pwned'\"&gt;</pre>")
    assert page.run("document.title") == f"{EVIL} · Mesos"
    assert not page.console


def test_page_of_10_000_tasks_shows_100_of_them(master: PlayedMaster, browser: Browser) -> None:
    master.state["frameworks"][0]["tasks"] = [task(n) for n in range(10_000)]
    page = browser.page(f"{master.url}/#/tasks")
    page.when("1 to 100 of 10000")
    assert len(names(page)) == 100
    page.click(".pages button", "Next")
    page.when("101 to 200 of 10000")
    page.fill("#search", "train-9999")
    page.when("1 in all")
    assert names(page) == ["train-9999"]
    busy_ms = page.run(
        "(() => { const begun = performance.now(); const box = document.getElementById('search'); box.value = '';"
        "box.dispatchEvent(new Event('input')); return performance.now() - begun; })()"
    )
    assert busy_ms < 1000, "the page is not frozen while it is drawn"


def test_page_of_a_master_that_does_not_lead_links_to_the_leader(
    master: PlayedMaster, browser: Browser
) -> None:
    leader, master.leader = master.url, "//127.0.0.1:1"
    page = browser.page(leader)
    html = page.when("This master does not lead.", "To the master that leads")
    assert '<a href="redirect">' in html
    master.leader = ""
    page.when("led by m1.example:5050")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "Give the name operator and its secret"),
        (403, "The master's access control lists (--acls) name who has."),
        (503, "No master leads now."),
        (500, "The master answers state with status 500."),
    ],
)
def test_refusal_of_the_master_is_told_with_its_remedy(
    master: PlayedMaster, browser: Browser, status: int, said: str
) -> None:
    master.refusal = status
    page = browser.page(master.url)
    page.when(said)
    master.refusal = 0
    if status == 401:
        asked = len(master.asked)
        page.click("button", "Give a name")
        assert len(master.asked) <= asked + 1, "each question would make the browser ask for a name"
    page.when("led by m1.example:5050")


def test_sandbox_shows_files_and_what_is_written_to_them(
    master: PlayedMaster, agent: PlayedAgent, browser: Browser
) -> None:
    page = browser.page(f"{master.url}/{TASK}")
    page.click("#view a", "stdout")
    page.when("epoch 1\n</pre>")
    agent.files["stdout"] += "epoch 2: größer\n".encode()
    page.when("epoch 1\nepoch 2: größer\n</pre>")
    html = page.html()
    assert (
        f'href="{agent.url}/files/download?path=%2Fframeworks%2Ffw%2Fexecutors%2Ft1%2Fruns%2Flatest%2Fstdout"'
        in html
    )
    page.click("#view a", "out/")
    page.when("model.bin", "sandbox on 127.0.0.11")
    assert page.run("location.hash") == f"{TASK}?dir=out"
    page.click("#view a", "sandbox on")
    page.click("#view a", "stderr")
    page.when("It is empty.")
    assert not page.console


def test_sandbox_shows_the_end_of_a_long_file_and_what_is_before(
    master: PlayedMaster, agent: PlayedAgent, browser: Browser
) -> None:
    agent.files["stdout"] = b"".join(b"%09d\n" % number for number in range(14_000))
    page = browser.page(f"{master.url}/{TASK}?file=stdout")
    html = page.when("000013999\n</pre>")
    assert "000007000" not in html
    page.click("#view button", "Show what is before")
    page.when("000007000")
    text = "document.querySelector('.logs').textContent"
    page.click("#view button", "Show what is before")
    wait_until("all of it is shown", lambda: page.run(text) == agent.files["stdout"].decode())
    assert page.run("document.querySelector('#view h3 + p button').hidden")


def test_script_of_an_agent_reaches_neither_page_nor_master(
    master: PlayedMaster, agent: PlayedAgent, browser: Browser
) -> None:
    agent.script = (
        "let told = []; for (const act of [() => { parent.document.title = 'pwned'; }, () => { top.location = '/x'; },"
        " () => localStorage.getItem('x'), () => document.cookie]) { try { act(); told.push('did'); } catch (error) "
        "{ told.push(error.name); } } parent.postMessage({told: told.join()}, '*');"
    )
    page = browser.page(f"{master.url}/{TASK}")
    page.run("addEventListener('message', ({data}) => { if (data.told) window.told = data.told; })")
    page.when("stdout", "stderr")
    wait_until("the script has run", lambda: page.run("window.told"))
    assert page.run("window.told") == ",".join(["SecurityError"] * 4)
    assert page.run("document.title") == "train-1 · Mesos"


@pytest.mark.parametrize("secured", [False, True])
def test_agent_that_sends_no_files_is_told_with_links_to_it(
    master: PlayedMaster, agent: PlayedAgent, browser: Browser, secured: bool
) -> None:
    agent.refusal = 401
    master.state["flags"] = {"authenticate_http_readonly": str(secured).lower()}
    page = browser.page(f"{master.url}/{TASK}")
    html = page.when(f"The agent {agent.ip} sends this browser no files")
    path = "%2Fframeworks%2Ffw%2Fexecutors%2Ft1%2Fruns%2Flatest"
    for link in (f"browse?path={path}", f"download?path={path}%2Fstdout", f"download?path={path}%2Fstderr"):
        assert f'href="{agent.url}/files/{link}"' in html
    assert ("This cluster asks for a name and a secret," in html) is secured
    agent.refusal = 0
    page.click("#view button", "Try again")
    page.when("sandbox on 127.0.0.11")


def test_page_of_a_sandbox_says_that_its_agent_is_gone(master: PlayedMaster, browser: Browser) -> None:
    master.state["slaves"] = []
    browser.page(f"{master.url}/{TASK}").when("Its agent is not in the cluster any more")


def parts_of(master: PlayedMaster, browser: Browser) -> Page:
    page = browser.page(master.url)
    page.when()
    return page


@each_look
def test_axe_has_nothing_against_any_part(master: PlayedMaster, browser: Browser, look: str) -> None:
    assert judged(parts_of(master, browser), PARTS, look) == {}


@pytest.mark.long
def test_parts_are_no_wider_than_a_phone_and_cut_nothing_off(master: PlayedMaster, browser: Browser) -> None:
    long = "x" * 90
    fw: dict[str, Any] = master.state["frameworks"][0]
    fw["tasks"].append(task(9, name=long, labels=[{"key": long, "value": long}]))
    page = parts_of(master, browser)
    parts = {**PARTS, "long": "#/tasks/fw/t9"}
    assert too_wide(page, parts) == {}
    assert not_seen(page, parts) == {}
