"""Somebody who follows a document: types its commands in their order, in a directory and a cluster of his own."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mesos_gpu.local.own_ports import free_port
from tests.documents.blocks import ROOT, Command, blocks, printed

#: What a command begins with that does not run here, and why.
NOT_HERE: Final = {
    "make ": "sets the machine up, which it is, or runs these tests",
    ". .venv/bin/activate": "the reader's PATH has it",
}
_NOT_YET, _NOT_THERE = 73, 66
#: What a command says of a job that has not begun yet, as on a busy machine.
_WAITS: Final = re.compile(r"^mesos-gpu: job \S+: waits for .*\n", re.M)
_PATIENCE_S: Final = 60.0
_END_S: Final = 300.0  # for the end of a cluster


class _Marathon(http.server.ThreadingHTTPServer):
    """A Marathon that answers GET /v2/groups and nothing else."""

    def __init__(self, groups: bytes) -> None:
        self.groups = groups
        super().__init__(("127.0.0.1", 0), _Groups)


class _Groups(http.server.BaseHTTPRequestHandler):
    """Answers of such a Marathon."""

    server: _Marathon

    def do_GET(self) -> None:
        body = self.server.groups
        self.send_response(200 if self.path == "/v2/groups" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


class Reader:
    """Has a directory for `up`, and one in it to work in.

    Args:
        home: Directory of the reader.
        marathon: URL of a Marathon from which apps are moved, for documents that name it as $MARATHON.
    """

    def __init__(self, home: Path, marathon: str = "") -> None:
        """Has the examples and the data of simulations where a clone has them."""
        self.home, self._marathon = home, marathon
        self.work = home / "work"
        shutil.copytree(ROOT / "docs/examples", self.work / "docs/examples")
        (self.work / "tests").mkdir()
        (self.work / "tests/data").symlink_to(ROOT / "tests/data")

    def type(self, line: str, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run a line as a person types it; `up` has a port that is free, and what is asked is answered yes. Both of its
        streams are one, as on a terminal."""
        with self.begin(line) as process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(line, process.returncode, output)

    def begin(self, line: str) -> "subprocess.Popen[str]":
        """Start a line as `type` does, for the caller to end."""
        environment = {
            **os.environ,
            "MARATHON": self._marathon,
            "MESOS_GPU_CONFIG": str(self.home / "settings"),
            "MESOS_GPU_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        environment.pop("MESOS_GPU_URL", None)
        line = line.replace("mesos-gpu up ", f"mesos-gpu up --port {free_port()} ")
        line = re.sub(r"(mesos-gpu queue (?:apply|rollback)) (?!.*--dry-run)", r"\1 --yes ", line)
        return subprocess.Popen(
            ["bash", "-c", line], cwd=self.work, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def follow(self, document: str) -> list[subprocess.CompletedProcess[str]]:
        """Write the files of a document and run its commands; return each line with what it printed."""
        typed = []
        for block in blocks(document):
            if "file" in block.marks:
                path = self.work / block.marks["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            good = {0, *map(int, block.marks.get("exit", "0").split(" or "))}
            for command in block.commands:
                if not any(command.text.startswith(word) for word in NOT_HERE):
                    typed.append(self._do(f"{document}:{block.line}: {command.text}", command, good))
        return typed

    def _do(self, where: str, command: Command, good: set[int]) -> subprocess.CompletedProcess[str]:
        done = self.type(command.text)
        give_up_at = time.monotonic() + _PATIENCE_S
        while _is_early(done) and done.returncode not in good and time.monotonic() < give_up_at:
            time.sleep(0.5)  # as a person does who is told that a job has not begun
            done = self.type(command.text)
        assert done.returncode in good, f"{where}\n{done.stdout}"
        assert "Traceback" not in done.stdout, f"{where}\n{done.stdout}"
        if command.prints is not None and any(command.prints):
            expected = "\n".join(command.prints)
            assert printed(command.prints, _WAITS.sub("", done.stdout)), (
                f"{where}\nis shown as:\n{expected}\nand prints:\n{done.stdout}"
            )
        return done


def _is_early(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a job has not begun, or a card is not reported yet."""
    return done.returncode == _NOT_YET or (done.returncode == _NOT_THERE and "there is no GPU" in done.stdout)


@contextmanager
def reading(parent: Path, groups: bytes | None = None) -> Iterator[Reader]:
    """A reader whose cluster ends with it.

    Args:
        parent: Directory in which the reader has one.
        groups: Answer to GET /v2/groups of the Marathon from which apps are moved; None for a recorded one.
    """
    home = Path(tempfile.mkdtemp(dir=parent))
    home.chmod(0o755)
    recorded = (ROOT / "tests/data/marathon/groups.json").read_bytes()
    with _Marathon(recorded if groups is None else groups) as marathon:
        threading.Thread(target=marathon.serve_forever, daemon=True).start()
        reader = Reader(home, f"http://127.0.0.1:{marathon.server_port}")
        try:
            yield reader
        finally:
            reader.type("mesos-gpu down")
            give_up_at = time.monotonic() + _END_S
            while (home / "up.json").exists() and time.monotonic() < give_up_at:
                time.sleep(0.5)  # large images take longer to remove than `down` waits
            shutil.rmtree(home)
            marathon.shutdown()
