"""Commands by which agents start the programs of mesos-gpu-executor.pyz, fetching the archive once if it is a URI."""

import re
import shlex
from typing import Final

PROGRAMS: Final = ("executor", "monitor", "keeper")
_FETCHED: Final = re.compile(r"((?:https?|file)://[^\s#]+)#sha256=([0-9a-f]{64})", re.ASCII)
#: Run by the agent's python3 as the executors' user, before a task starts. Content with another digest is never run.
_FETCH: Final = """\
import hashlib, os, sys, tempfile, urllib.request
uri, wanted, path = sys.argv[1:]
os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
handle, part = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".fetched-")
try:
    told, left = hashlib.sha256(), 64 << 20
    with os.fdopen(handle, "wb") as file, urllib.request.urlopen(uri, timeout=60) as source:
        while left > 0 and (data := source.read(min(left, 1 << 20))):
            left -= len(data)
            told.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if told.hexdigest() != wanted:
        sys.exit(f"{uri} has the SHA-256 {told.hexdigest()}, not {wanted}: nothing of it is run")
    os.chmod(part, 0o644)
    os.rename(part, path)
    part = ""
finally:
    if part:
        os.unlink(part)
"""


def is_place(text: str) -> bool:
    """Return whether a text is an absolute path, or a URI followed by `#sha256=` and a digest."""
    return bool(_FETCHED.fullmatch(text) or re.fullmatch(r"/[^\s#]+", text))


def command(where: str, program: str) -> str:
    """Return the shell command by which an agent starts a program of the archive.

    Args:
        where: Path or URI with digest, as accepted by `is_place`.
        program: Name from `PROGRAMS`.
    """
    fetched = _FETCHED.fullmatch(where)
    if fetched is None:
        return f"exec python3 -IS {shlex.quote(where)} {program}"
    uri, digest = fetched.groups()
    path = f'"${{MESOS_GPU_NODE_DIR:-/var/lib/mesos-gpu}}"/programs/{digest}.pyz'
    fetch = f"python3 -IS -c {shlex.quote(_FETCH)} {shlex.quote(uri)} {digest} {path}"
    return f"[ -f {path} ] || {fetch} || exit; exec python3 -IS {path} {program}"
