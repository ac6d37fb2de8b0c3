"""Pictures of each part of the page, light, dark and on a phone: `python -m tests.web.screenshots DIRECTORY [PAGES]`.

Small copies of those in `OF_PAGES` are written into PAGES, for docs/dashboard.md and README.md.
"""

import io
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from PIL import Image

from mesos_gpu.wire.channel.frames import Kind
from tests.contract.channels.test_channels import Sealed
from tests.web.browser import LOOKS, Browser, Page
from tests.web.relay import Prints
from tests.web.scene import Scene, Whole
from tests.web.teams import doubles
from tests.web.teams.tenants import Tenants
from tests.web.terminals import Host

EPOCHS: Final = "".join(
    f"epoch {epoch:3}  loss {2.4 / (1 + epoch / 9):.4f}  accuracy {0.93 - 0.7 / (1 + epoch / 6):.3f}\n"
    for epoch in range(1, 31)
)
_PROMPT: Final = "\x1b[1;32mann@a1\x1b[0m:\x1b[1;34m~\x1b[0m$ "
TYPED: Final = (
    f"{_PROMPT}nvidia-smi -L\r\nGPU 0: A100 (UUID: GPU-a1-0)\r\nGPU 1: A100 (UUID: GPU-a1-1)\r\n"
    f"{_PROMPT}ls --color\r\n\x1b[1;34mcheckpoints\x1b[0m  stdout  stderr  \x1b[1;32mtrain.sh\x1b[0m\r\n"
    f"{_PROMPT}tail -n 2 stdout\r\n" + "\r\n".join(EPOCHS.splitlines()[-2:]) + f"\r\n{_PROMPT}"
)
#: The page's own scheduler knows no agent to ask for output.
PRINTED: Final = """(() => {{
  const own = window.fetch, end = {end}, text = {text};
  const said = (at) => ({{data: at < 0 ? text : "", offset: 0, next_offset: end, task_id: ""}});
  const json = {{headers: {{"Content-Type": "application/json"}}}};
  window.fetch = async (path, ...more) => path.includes("/logs?")
    ? new Response(JSON.stringify(said(Number(new URL(path, location.href).searchParams.get("offset")))), json)
    : own(path, ...more);
}})()"""


def parts(scene: Scene) -> dict[str, str]:
    """The address of each part, by its name."""
    jobs = {job["name"]: job["id"] for job in scene.call("GET", "/v1/jobs").json()["jobs"]}
    return {
        "overview": "#/",
        "jobs": "#/jobs",
        "job": f"#/jobs/{jobs['train']}",
        "job-waits": f"#/jobs/{jobs['ddp']}",
        "apps": "#/apps",
        "app": "#/apps/%2Fshop%2Fweb",
        "app-upgrade": "#/apps/%2Fshop%2Fapi",
        "nodes": "#/nodes",
        "node": "#/nodes/a1.example",
        "node-shared": "#/nodes/a3.example",
        "card": "#/cards/GPU-a1-0",
        "card-sick": "#/cards/GPU-a1-7",
        "card-shared": "#/cards/GPU-a3-0",
        "queues": "#/queues",
        "queue": "#/queues/research%2Fvision",
        "submit": "#/submit",
        "submit-template": "#/submit?from=torch-distributed",
    }


#: What a pool of several teams has beside that.
SHARED: Final = {
    "queues-shared": "#/queues",
    "queue-borrows": "#/queues/research%2Fvision",
    "queue-above": "#/queues/research",
}


#: What takes days to come about, and is put in place of the interface's answers.
TOLD: Final = {
    "calendar": "#/calendar",
    "calendar-day": "#/calendar?days=1",
    "booking": "#/calendar/exam-1a2b3c4d",
    "idle": "#/idle",
}


#: Pictures that pages of the documentation show, and the height in pixels to which each is cut.
OF_PAGES: Final = {
    "overview-light.png": 860,
    "job-dark.png": 1180,
    "submit-light.png": 1300,
    "job-phone.png": 900,
}
MAX_COLOURS: Final = 128


class Drawn(Whole, Sealed):
    """A scene whose executors can be played."""


def pictures(page: Page, directory: Path, name: str) -> None:
    """Write the page as it is now as NAME-LOOK.png, for each of `LOOKS`."""
    for look, (width, dark) in LOOKS.items():
        page.size(width, dark=dark)
        (directory / f"{name}-{look}.png").write_bytes(page.picture())


def terminal(page: Page, scene: Drawn) -> Host:
    """Open one in the first job, in which something was typed."""
    page.when()
    page.run(PRINTED.format(end=len(EPOCHS), text=json.dumps(EPOCHS)))
    (job,) = scene.call("GET", "/v1/jobs?named=train").json()["jobs"]
    page.visit(f"#/jobs/{job['id']}")
    scene.task = job["task_id"]
    host = Host(scene, page)
    host.says(Kind.STDOUT, TYPED.encode())
    page.when("epoch  30", "checkpoints")
    return host


def shared(browser: Browser, directory: Path) -> None:
    """Take pictures of a pool that several teams share."""
    tenants = Tenants()
    try:
        page = browser.page(tenants.url)
        for name, address in SHARED.items():
            page.visit(address)
            pictures(page, directory, name)
        midnight = float(page.run("new Date().setHours(0, 0, 0, 0) / 1000"))
        doubles.answer(page, {**doubles.calendar(tenants, midnight), **doubles.idlers(tenants, time.time())})
        for name, address in TOLD.items():
            page.visit(address)
            pictures(page, directory, name)
    finally:
        tenants.close()


def write_small_copies(directory: Path, pages: Path) -> None:
    """Write the pictures of `OF_PAGES`, cut and with few colours, into another directory."""
    pages.mkdir(parents=True, exist_ok=True)
    for name, height in OF_PAGES.items():
        with Image.open(io.BytesIO((directory / name).read_bytes())) as whole:
            part = whole.convert("RGB").crop((0, 0, whole.width, min(height, whole.height)))
        counts = Counter(zip(*[iter(part.tobytes())] * 3, strict=True))
        palette = Image.new("P", (1, 1))
        palette.putpalette([light for colour, _ in counts.most_common(MAX_COLOURS) for light in colour])
        part.quantize(palette=palette, dither=Image.Dither.NONE).save(pages / name, optimize=True)


def take(directory: Path) -> None:
    """All of them, as PART-LOOK.png."""
    directory.mkdir(parents=True, exist_ok=True)
    scene = Drawn()
    prints = Prints(scene)
    prints.printed["stdout"] = EPOCHS
    threading.Thread(target=prints.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as own:
        browser = Browser(Path(own))
        try:
            page = browser.page(prints.url)
            for name, address in parts(scene).items():
                page.visit(address)
                if name == "job":
                    page.when("epoch  30")
                if name == "submit":
                    page.fill("form.submit [name=command]", "python3 train.py --epochs 90")
                    page.when("Fits now on ")
                pictures(page, directory, name)
            page = browser.page(scene.url)
            page.size(LOOKS["light"][0])
            host = terminal(page, scene)
            pictures(page, directory, "job-terminal")
            host.close()
            shared(browser, directory)
        finally:
            browser.close()
            prints.shutdown()
            prints.server_close()
            scene.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        write_small_copies(Path(sys.argv[1]), Path(sys.argv[2]))
