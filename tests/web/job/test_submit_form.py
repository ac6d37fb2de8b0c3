"""The form that submits jobs: its plan while one types, fields with several lines, and code that is sent along."""

import io
import json
import tarfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mesos_gpu.adapters.uploads.store import UploadLimits, UploadStore
from mesos_gpu.cli.code.archive import find
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.web.browser import NEEDED, Browser, Page

pytestmark = NEEDED
PLAN: Final = "document.querySelector('.plan').textContent"
#: Files as a browser gives those of a directory, from paths and texts.
PICK: Final = """import('/static/upload.js').then(async ({{chosen, pack}}) => {{
  const files = Object.entries({texts}).map(([path, text]) => {{
    const file = new File([text], path.split("/").at(-1));
    Object.defineProperty(file, "webkitRelativePath", {{value: "code/" + path}});
    return file;
  }});
  const {{entries, left}} = await chosen(files);
  const bytes = new Uint8Array(await (await pack(entries)).arrayBuffer());
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte));
  return [entries.map((entry) => entry.name), left, btoa(letters.join(""))];
}})"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    store = UploadStore(tmp_path_factory.mktemp("uploads"), UploadLimits(4 << 20, 8 << 20))
    rig = Rig(uploads=store, task_key=lambda: b"k" * 16)
    rig.node()
    yield rig
    rig.close()


def submitted(rig: Rig, page: Page, name: str) -> dict[str, Any]:
    """Submit the form; return the request that makes its job, which is ended."""
    page.fill("form.submit [name=name]", name)
    page.click("form.submit button.main", "Submit")
    page.when(f'data-shown="#/jobs/{name}')
    (job,) = rig.call("GET", f"/v1/jobs?named={name}").json()["jobs"]
    path = f"/v1/jobs/{job['id']}"
    request = rig.call("GET", f"{path}/command?show_env=true").json()["request"]
    assert rig.call("DELETE", path).ok
    return dict(request)


@pytest.fixture
def idle() -> Iterator[Rig]:
    """Return a scheduler with a card that no job holds."""
    rig = Rig()
    rig.node()
    yield rig
    rig.close()


def test_form_says_while_one_types_whether_a_job_fits(idle: Rig, browser: Browser) -> None:
    rig = idle
    page = browser.page(f"{rig.url}/#/submit")
    page.fill("form.submit [name=command]", "true")
    wait_until("it fits", lambda: page.run(PLAN) == "Fits now on a1.example.")
    page.fill("form.submit [name=gpus]", "8")
    wait_until("it never fits", lambda: "Can never run: " in page.run(PLAN))
    assert "To fix: GPUs of each task at most 1." in page.run(PLAN)
    rig.submit(name="holder", gpus=1)
    page.fill("form.submit [name=gpus]", "1")
    wait_until("it would wait", lambda: page.run(PLAN).startswith("Would wait for "))
    page.fill("form.submit [name=env]", "LANG")
    wait_until("a line is wrong", lambda: "LANG has no value here: write NAME=VALUE" in page.run(PLAN))


def test_form_takes_fields_with_several_lines(rig: Rig, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/submit")
    page.fill("form.submit [name=command]", "true")
    page.fill("form.submit [name=secrets]", "HF_TOKEN")
    page.click("form.submit button.main", "Submit")
    page.when("HF_TOKEN is not KEY=VALUE")
    assert page.run("[...document.querySelectorAll('[aria-invalid]')].map((each) => each.name)") == [
        "secrets"
    ]
    page.fill("form.submit [name=secrets]", "")
    page.fill("form.submit [name=env]", "A=b=c\n\nQUOTED=it's")
    page.fill("form.submit [name=volumes]", "/data:/data:ro\n name=data,path=out,size=1GiB,ro")
    page.fill("form.submit [name=labels]", "team=vision")
    page.fill("form.submit [name=disk_mib]", "100")
    page.run("document.querySelector('form.submit [name=preemptible]').click()")
    request = submitted(rig, page, "lines")
    assert request["env"] == {"A": "b=c", "QUOTED": "it's"}
    named = {"name": "data", "path": "out", "size": "1GiB", "read_only": True}
    assert request["volumes"] == ["/data:/data:ro", named]
    assert (request["labels"], request["disk_mib"], request["preemptible"]) == ({"team": "vision"}, 100, True)


def test_form_sends_files_along(rig: Rig, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    page = browser.page(f"{rig.url}/#/submit")
    page.fill("form.submit [name=command]", "./run.sh")
    page.ask("DOM.enable")
    root = page.ask("DOM.getDocument")["root"]["nodeId"]
    node = page.ask("DOM.querySelector", {"nodeId": root, "selector": "form.submit input[type=file]"})[
        "nodeId"
    ]
    files = [str(tmp_path / name) for name in ("train.py", "run.sh")]
    page.ask("DOM.setFileInputFiles", {"nodeId": node, "files": files})
    page.when("2 files, ", "run.sh, train.py")
    request = submitted(rig, page, "coded")
    digest = request["upload"].removeprefix("sha256:")
    (kept,) = rig.call("GET", "/v1/uploads").json()["uploads"]
    assert (kept["sha256"], kept["complete"]) == (digest, True)


TREE: Final = {
    ".gitignore": "*.log\n!keep.log\n/build\nout/\n# no rule\ndocs/**/*.tmp\n[ab].txt\n**/deep\n",
    ".mesosgpuignore": "secret*\n",
    "train.py": "print('hello')\n", "run.sh": "#!/bin/sh\n", "x.log": "", "keep.log": "", "build/a": "",
    "sub/build": "",
    "sub/out/a": "", "sub/x.log": "", "sub/.gitignore": "!x.log\n", "docs/a/b/c.tmp": "", "docs/c.tmp": "", "a.txt": "",
    "c.txt": "", "sub/deep/a": "", ".git/config": "", "secrets.env": "", "sub/secret": "", "stdout": "",
    "long/" + "n" * 120: "long", "ümlaut": "u",
}  # fmt: skip


def test_archive_of_a_directory_has_the_files_of_the_command_line(
    rig: Rig, browser: Browser, tmp_path: Path
) -> None:
    for path, text in TREE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    wanted = [entry.name for entry in find(tmp_path).entries]
    page = browser.page(f"{rig.url}/#/submit")
    page.when()
    names, left, packed = page.run(PICK.format(texts=json.dumps(TREE)))
    assert sorted(names) == sorted(wanted)
    assert left == ["stdout (the sandbox has its own)"]
    with tarfile.open(fileobj=io.BytesIO(b64decode(packed))) as tar:
        modes = {member.name: member.mode for member in tar}
        texts = {name: tar.extractfile(name).read().decode() for name in modes}  # type: ignore[union-attr]
    assert texts == {name: TREE[name] for name in wanted}
    assert (modes["run.sh"], modes["train.py"]) == (0o755, 0o644)


def test_form_of_a_template_has_readable_names_and_units(rig: Rig, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/submit?from=vllm")
    page.when('name="hf_token"')
    labels = page.run(
        "[...document.querySelectorAll('form.submit label')].map((one) => one.firstChild.textContent)"
    )
    assert {"HF token", "API key", "GPUs"} <= set(labels)
    assert not [label for label in labels if "_" in label]
