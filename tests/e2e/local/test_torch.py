"""Commands of the documents for PyTorch, typed as they are printed, on hosts that have it and in images."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import requests

from mesos_gpu.cli.client import Client
from tests.documents.blocks import ROOT, blocks, documents
from tests.documents.reader import Reader, reading
from tests.e2e.local import with_torch

pytestmark = [pytest.mark.cluster, pytest.mark.on_change("documents")]
IMAGES: Final = ("pytorch/pytorch", "quay.io/jupyter/pytorch-notebook")
EXAMPLES: Final = sorted((ROOT / "docs/examples").glob("*.py"))
PAGE_S: Final = 900.0  # for a training of eight processes on two busy processors


@dataclass(frozen=True)
class Printed:
    """A command or a file of a job on a page.

    Attributes:
        page: Path of the page below the root of the repository.
        text: Command as it is printed, or the text of the file.
    """

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"


def commands() -> list[Printed]:
    """Return the commands that run programs of PyTorch: in blocks, in sentences, and in the examples themselves."""
    texts = {page: (ROOT / page).read_text() for page in documents()}
    texts |= {str(path.relative_to(ROOT)): path.read_text() for path in EXAMPLES}
    printed: dict[str, Printed] = {}
    for page, text in texts.items():
        for line in re.findall(r"mesos-gpu (?:run|notebook) [^`\n]*", text):
            if "torch" in line:
                printed.setdefault(line.strip(), Printed(page, line.strip()))
    return list(printed.values())


def runs() -> list[Printed]:
    """Return commands that train and end."""
    return [each for each in commands() if each.text.startswith("mesos-gpu run ")]


def notebooks() -> list[Printed]:
    """Return commands that stay until Ctrl-C."""
    return [each for each in commands() if each.text.startswith("mesos-gpu notebook ")]


def job_files() -> list[Printed]:
    """Return job files that run torchrun."""
    every = [block for page in documents() for block in blocks(page) if block.language == "yaml"]
    return [Printed(block.document, block.text) for block in every if "argv: [torchrun" in block.text]


def test_documents_print_commands_for_torch_on_one_node_and_on_several() -> None:
    assert {each.page for each in runs()} == {"docs/examples/ddp.py", "docs/torchrun.md"}
    assert len(runs()) == 3
    assert {each.page for each in notebooks()} == {"docs/guide.md", "docs/notebooks.md"}
    assert {each.page for each in job_files()} == {"docs/jobs.md", "docs/torchrun.md"}


@pytest.fixture(scope="module")
def torch() -> Iterator[Path]:
    """An environment with PyTorch in a directory that every task may read, and that is no task's own."""
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-torch-", dir="/opt"))
    try:
        directory.chmod(0o755)
        with_torch.install(directory / "env")
        yield directory / "env"
    except with_torch.NotInstalled as error:
        pytest.skip(f"no PyTorch for CPUs can be had here: {error}")
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def reader(torch: Path) -> Iterator[Reader]:
    """A reader with a cluster of two hosts that have torchrun in /usr/local/sbin, and images."""
    parent = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    parent.chmod(0o755)
    programs, images = parent / "programs", parent / "images"
    programs.mkdir()
    images.mkdir()
    (programs / "torchrun").symlink_to(torch / "bin/torchrun")
    try:
        with_torch.images(images, torch, IMAGES)
        with reading(parent) as reader:
            up = f"mesos-gpu up --detach --agents 2 --gpus 4 --images {images}"
            own = f"mount --bind {programs} /usr/local/sbin && {up}"
            started = reader.type(f"unshare --mount sh -c {shlex.quote(own)}")
            assert started.returncode == 0, started.stdout
            yield reader
    finally:
        shutil.rmtree(parent)


as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: others have no directory that all tasks see"
)
later = [pytest.mark.long, pytest.mark.timeout(PAGE_S * 2), as_root]


def said(reader: Reader, line: str) -> str:
    """Return the output of a line that succeeds."""
    done = reader.type(line, timeout_s=PAGE_S)
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def latest(reader: Reader) -> str:
    """Return the id of the job that was submitted last."""
    with Client(json.loads((reader.home / "up.json").read_text())["url"]) as client:
        return str(client.jobs()[0]["id"])


@pytest.mark.parametrize("printed", [pytest.param(each, marks=later, id=str(each)) for each in runs()])
def test_torch_command_trains_as_it_is_printed(reader: Reader, printed: Printed) -> None:
    assert said(reader, printed.text).count("rank 0 step") == 10


@pytest.mark.parametrize("printed", [pytest.param(each, marks=later, id=str(each)) for each in job_files()])
def test_torch_job_file_trains_as_it_is_printed(reader: Reader, printed: Printed) -> None:
    (reader.work / "docs/examples/job.yaml").write_text(printed.text)
    job = said(reader, "mesos-gpu submit docs/examples/job.yaml").split()[-1]
    assert said(reader, f"mesos-gpu wait {job}").split() == [job, "finished", "0"]
    assert said(reader, f"mesos-gpu logs {job}").count("rank 0 step") == 10


@pytest.mark.parametrize("printed", [pytest.param(each, marks=later, id=str(each)) for each in notebooks()])
def test_torch_notebook_starts_as_it_is_printed(reader: Reader, printed: Printed) -> None:
    with reader.begin(f"exec {printed.text}") as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            url = next((line.strip() for line in lines if line.startswith("http://")), "")
            assert url, process.wait()
            base, _, token = url.partition("?token=")
            kernel = requests.post(f"{base}api/kernels", params={"token": token}, json={}, timeout=60)
            assert kernel.status_code == 201, kernel.text
            program = "import torch; print(torch.ones(2).sum().item())"
            assert said(reader, f"mesos-gpu exec notebook -- python3 -c {shlex.quote(program)}") == "2.0\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.timeout(PAGE_S * 2)
@as_root
def test_torch_example_leaves_a_checkpoint_that_its_page_copies(reader: Reader, torch: Path) -> None:
    text = (ROOT / "docs/examples/ddp.py").read_text()
    run, copy = re.findall(r"^ {4}(mesos-gpu .*)$", text, re.MULTILINE)
    said(reader, f"{run} --steps 200")
    job = latest(reader)
    said(reader, copy.replace("JOB", job))
    load = "import sys, torch; print(torch.load(sys.argv[1])['step'])"
    loaded = [f"{torch}/bin/python", "-c", load, f"{reader.work}/checkpoint.pt"]
    assert subprocess.check_output(loaded, text=True) == "200\n"


@pytest.mark.long
@pytest.mark.timeout(PAGE_S * 2)
@as_root
def test_torch_example_trains_on_two_nodes_and_runs_until_it_is_interrupted(reader: Reader) -> None:
    options = "--upload docs/examples --gpus 1 --tasks 2 --constraint hostname:UNIQUE"
    with reader.begin(f"exec mesos-gpu run {options} -- torchrun ddp.py --steps 100000") as process:
        assert process.stdout is not None
        try:
            wanted = {
                "[0] rank 0 of 2 on cpu, gloo",
                "[1] rank 1 of 2 on cpu, gloo",
                "[0] rank 0 step 200 ",
            }
            for line in iter(process.stdout.readline, ""):
                wanted = {each for each in wanted if not line.startswith(each)}
                if not wanted:
                    break
            assert not wanted
            job = latest(reader)
            printed = said(reader, f"mesos-gpu exec {job} --rank 1 -- printenv RANK PET_NODE_RANK")
            assert printed == "1\n1\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    losses = [
        float(line.split()[-1])
        for line in said(reader, f"mesos-gpu run {options} -- torchrun ddp.py").splitlines()
        if line.startswith("[1] rank 1 step")
    ]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 10
