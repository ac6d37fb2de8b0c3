"""How the dashboard does on 10,000 cards: `python -m tests.web.large` prints the first picture, how long it takes until
what somebody does is shown, also with a tree of 500 queues, and what pages cost the scheduler. With `queues` it looks
at the tree alone."""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.nodes.gpu import Inventory
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer
from tests.web.browser import Browser, Page

NODES: Final = 1250
CARDS: Final = 8  # of each
JOBS: Final = 500
PAGES: Final = 20
ROUNDS: Final = 5
SETTLE_S: Final = 6.0
MEASURE_S: Final = 20.0
#: What somebody does, as JavaScript, and what is true of the page once it is shown.
DOES: Final = {
    "overview, from jobs": ("location.hash = '#/'", "document.querySelectorAll('a.cell').length === 10000"),
    "colour cards by owner": (
        "document.querySelector('#view .choice input').click()",
        "document.querySelector('#view .map').key === `map ${document.querySelector('.choice input').checked}`",
    ),
    "from card to card by key": (
        "one = document.querySelector('a.cell'); one.focus(); one.dispatchEvent(new KeyboardEvent('keydown', "
        "{key: 'ArrowDown', bubbles: true}))",
        "document.activeElement !== one",
    ),
    "all nodes": ("location.hash = '#/nodes'", "document.querySelectorAll('tbody tr').length === 100"),
    "nodes, sorted": (
        "[...document.querySelectorAll('button.sort')].find((one) => one.textContent.startsWith('Allocated')).click()",
        "document.querySelector('[aria-sort]')?.textContent.startsWith('Allocated')",
    ),
    "nodes, searched": (
        "box = document.getElementById('search'); box.value = 'n77'; box.dispatchEvent(new Event('input'))",
        "document.querySelectorAll('tbody tr').length < 20",
    ),
    "a node": ("location.hash = '#/nodes/n7.example'", "document.title.startsWith('n7')"),
    "a card": (
        "location.hash = '#/cards/GPU-n7-3'",
        "document.querySelector('h2')?.textContent.startsWith('n7')",
    ),
    "all jobs": ("location.hash = '#/jobs'", "document.querySelectorAll('tbody tr').length === 100"),
    "jobs, next page": (
        "[...document.querySelectorAll('.pages button')].at(-1).click()",
        "document.querySelector('.pages')?.textContent.includes('101 to')",
    ),
    "jobs, searched": (
        "box = document.getElementById('search'); box.value = 'j42'; box.dispatchEvent(new Event('input'))",
        "document.querySelectorAll('tbody tr').length === 11",
    ),
}
LEAVES: Final = {"of 10 leaves": (2, 5), "of 500 leaves": (10, 50)}  # queues at the top, and below each
ROWS: Final = "document.querySelectorAll('[data-shown=\"#/queues%s\"] .below').length"
#: What somebody does with the tree, where that leads, and how many rows there are then, of so many at the top and in
#: all; `default` is one of them.
WITH_QUEUES: Final[dict[str, tuple[str, str, Callable[[int, int], int]]]] = {
    "queues, from jobs": ("location.hash = '#/queues'", "", lambda top, every: every if every <= 60 else top),
    "all open": (
        "[...document.querySelectorAll('button')].find((each) => each.textContent === 'Open all').click()",
        "?all=true",
        lambda _top, every: min(every, 100),
    ),
}
TIMED: Final = """new Promise((done, failed) => {{
  const begun = performance.now();
  {does};
  const look = () => {{
    const stands = location.hash.split("?")[0] === (document.getElementById("view").dataset.shown || "").split("?")[0];
    if (stands && ({shown})) requestAnimationFrame(() => done(performance.now() - begun));
    else if (performance.now() - begun > 20000) failed("it is not shown");
    else requestAnimationFrame(look);
  }};
  requestAnimationFrame(look);
}})"""


def cluster() -> Rig:
    """10,000 cards, of which jobs hold 4,000."""
    rig = Rig(now=time.time())
    rig.daemon.put(ev.OffersArrived(tuple(offer(f"n{i}-1", f"n{i}", gpus=CARDS) for i in range(NODES))))
    rig.daemon.read(lambda view: len(view.nodes)).result(300)
    for i in range(NODES):
        cards = tuple(replace(gpu(f"GPU-n{i}-{k}"), minor=k, index=k) for k in range(CARDS))
        rig.tell(Inventory(cards, "simulated", "535", "12.2"), f"n{i}")
    for i in range(JOBS):
        rig.submit(name=f"j{i}", gpus=CARDS, cpus=0.1)
    rig.daemon.put(ev.OffersArrived(tuple(offer(f"n{i}-2", f"n{i}", gpus=CARDS) for i in range(NODES))))
    rig.daemon.read(lambda view: len(view.nodes)).result(300)
    return rig


def interactions(page: Page) -> dict[str, float]:
    """Milliseconds until what is done is shown, the median of some rounds."""
    took: dict[str, list[float]] = {name: [] for name in DOES}
    for _ in range(ROUNDS):
        page.visit("#/jobs")
        for name, (does, shown) in DOES.items():
            took[name].append(float(page.run(TIMED.format(does=does, shown=shown))))
    return {name: round(statistics.median(each)) for name, each in took.items()}


def queues(browser: Browser) -> dict[str, float]:
    """Milliseconds until trees of queues are shown, the median of some rounds: one beside the other, in turns."""
    took: dict[str, list[float]] = {}
    rigs = {name: teams(*sizes) for name, sizes in LEAVES.items()}
    pages = {name: browser.page(rig.url) for name, rig in rigs.items()}
    for _ in range(ROUNDS):
        for name, page in pages.items():
            page.visit("#/jobs")
            top, below = LEAVES[name]
            for what, (does, where, rows) in WITH_QUEUES.items():
                shown = f"{ROWS % where} === {rows(top + 1, top * (below + 1) + 1)}"
                spent = page.run(TIMED.format(does=does, shown=shown))
                took.setdefault(f"{what}, {name}", []).append(float(spent))
    for rig in rigs.values():
        rig.close()
    return {name: round(statistics.median(each)) for name, each in took.items()}


def teams(top: int, below: int) -> Rig:
    """A node, and a tree of so many queues at the top, each with so many below it, each of which is owed a card."""
    rig = Rig(now=time.time())
    rig.daemon.put(ev.OffersArrived((offer("n0-1", "n0", gpus=top * below),)))
    cards = tuple(replace(gpu(f"GPU-{k}"), minor=k, index=k) for k in range(top * below))
    rig.tell(Inventory(cards, "simulated", "535", "12.2"), "n0")
    tree = {f"team{i}": {"guarantee_gpus": below} for i in range(top)}
    tree |= {f"team{i}/q{k}": {"guarantee_gpus": 1} for i in range(top) for k in range(below)}
    done = rig.call("PUT", "/v1/queues", json={"version": 0, "queues": tree})
    assert done.ok, done.text
    return rig


def main() -> None:
    """Print it."""
    if sys.argv[1:] == ["queues"]:
        browser = Browser(Path(tempfile.mkdtemp()))
        print(json.dumps(queues(browser), indent=1))
        browser.close()
        return
    rig, directory = cluster(), tempfile.mkdtemp()
    browser = Browser(Path(directory))
    page = browser.page(rig.url)
    page.when('class="cell')
    paint = page.run("performance.getEntriesByType('paint').map((each) => each.startTime)")
    print(json.dumps({"first paint, ms": round(paint[0]), **interactions(page), **queues(browser)}, indent=1))
    page.visit("#/")
    for _ in range(PAGES - 1):
        browser.page(rig.url)
    time.sleep(SETTLE_S)
    used_s, begun = time.process_time(), time.monotonic()
    time.sleep(MEASURE_S)
    part = (time.process_time() - used_s) / (time.monotonic() - begun)
    print(f"{PAGES} pages on {NODES * CARDS} cards: {100 * part:.1f} % of a core of the scheduler")
    browser.close()
    rig.close()


if __name__ == "__main__":
    main()
