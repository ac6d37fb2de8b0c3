"""The program `mesos-fetcher`, which the agent runs for a container with URIs; it is not in the distribution.

Input and behaviour are those of launcher/fetcher.cpp of 1.11.0, without hdfs: and similar schemes: files are fetched as
the task's user, one after another, and the first failure ends the program. The agent manages the cache.
"""

import encodings.idna  # noqa: F401 - of socket: see below
import gzip
import json
import os
import pwd
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from typing import Any, Final

INFO: Final = "MESOS_FETCHER_INFO"
STALL_S: Final = 60.0
_TARS: Final = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
# All modules are imported at the start: the task's user may not be allowed to read this interpreter's library.
_NET: Final = ("http://", "https://", "ftp://", "ftps://")


class Failed(Exception):
    """A file could not be fetched; the text gives the reason."""


def main() -> int:
    """Fetch the URIs that the environment lists. Return the exit code."""
    info = json.loads(os.environ[INFO])
    sandbox, cache = info["sandbox_directory"], info.get("cache_directory", "")
    _become(
        info.get("user"), cache if any(item["action"] != "BYPASS_CACHE" for item in info["items"]) else ""
    )
    for item in info["items"]:
        uri = item["uri"]["value"]
        try:
            _fetch(item, sandbox, cache)
        except Exception as error:  # noqa: BLE001 - errors of archives and servers too; the sandbox gets one line
            print(f"Failed to fetch '{uri}': {error}", file=sys.stderr, flush=True)
            return 1
        print(f"Fetched '{uri}'", file=sys.stderr, flush=True)
    return 0


def _become(user: str | None, cache: str) -> None:
    """Switch to the task's user and give it the cache directory; "" if no cache is needed."""
    entry = pwd.getpwnam(user) if user is not None else None
    if cache:
        os.makedirs(cache, exist_ok=True)
        if entry is not None:
            os.chown(cache, entry.pw_uid, entry.pw_gid)
    if entry is not None and entry.pw_uid != os.geteuid():
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def _fetch(item: Mapping[str, Any], sandbox: str, cache: str) -> None:
    """Fetch one URI into the sandbox, through the cache if requested, and extract or copy it."""
    uri = item["uri"]
    target = os.path.join(sandbox, uri.get("output_file") or uri["value"].rpartition("/")[2])
    os.makedirs(os.path.dirname(target), exist_ok=True)
    source = target
    if item["action"] != "BYPASS_CACHE":
        source = os.path.join(cache, item["cache_filename"])
    if item["action"] != "RETRIEVE_FROM_CACHE":
        _download(uri["value"].strip(), source)
    executable = uri.get("executable", False)
    if not executable and uri.get("extract", True) and _extracted(source, sandbox):
        return
    if source != target:
        shutil.copyfile(source, target)
    if executable:
        os.chmod(target, 0o755)  # nosec B103 # requested by the URI; Mesos sets this mode too


def _download(uri: str, target: str) -> None:
    """Download a URI, or copy a local file, to a path."""
    if not uri.lower().startswith(_NET):
        if "://" in uri and not uri.startswith("file://"):
            raise Failed("the embedded Mesos has no Hadoop client, which would fetch it")
        path = uri.removeprefix("file://").removeprefix("localhost")
        if not path.startswith("/"):
            raise Failed("file URIs must have absolute paths")
        shutil.copyfile(path, target)
        return
    try:
        with (
            urllib.request.urlopen(uri, timeout=STALL_S) as answer,  # nosec B310 # its scheme is one of _NET
            open(target, "wb") as file,
        ):
            shutil.copyfileobj(answer, file)
    except urllib.error.HTTPError as error:
        raise Failed(f"Error downloading resource, received HTTP return code {error.code}") from None


def _extracted(source: str, directory: str) -> bool:
    """Extract an archive. Return False if the file is not an archive."""
    if source.endswith(_TARS):
        _tool(["tar", "--extract", "--no-same-owner", "--file", source, "--directory", directory])
    elif source.endswith(".zip"):
        with zipfile.ZipFile(source) as archive:
            archive.extractall(directory)
    elif source.endswith(".gz"):
        plain = os.path.join(directory, os.path.basename(source).removesuffix(".gz"))
        with gzip.open(source) as packed, open(plain, "wb") as file:
            shutil.copyfileobj(packed, file)
    else:
        return False
    return True


def _tool(argv: list[str]) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{argv[0]}: {done.stderr.strip() or done.returncode}")
