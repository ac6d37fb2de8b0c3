"""Pictures of each part of the page, light, dark and on a phone: `python -m tests.web.screenshots DIRECTORY`."""

import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from tests.web.browser import Browser
from tests.web.prints import Prints
from tests.web.scene import Scene, Whole

EPOCHS: Final = "".join(
    f"epoch {epoch:3}  loss {2.4 / (1 + epoch / 9):.4f}  accuracy {0.93 - 0.7 / (1 + epoch / 6):.3f}\n"
    for epoch in range(1, 31)
)
LOOKS: Final = {"light": (1280, False), "dark": (1280, True), "phone": (390, False)}


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


def take(directory: Path) -> None:
    """All of them, as PART-LOOK.png."""
    directory.mkdir(parents=True, exist_ok=True)
    scene = Whole()
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
                for look, (width, dark) in LOOKS.items():
                    page.size(width, dark=dark)
                    (directory / f"{name}-{look}.png").write_bytes(page.picture())
        finally:
            browser.close()
            prints.shutdown()
            prints.server_close()
            scene.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
