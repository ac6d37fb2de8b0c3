"""What is brought into a task's sandbox before it starts: files by Mesos' fetcher, and its submitter's own archive."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.jobs.fields import Text

#: What the fetcher takes for a URI (Fetcher::basename in slave/containerizer/fetcher.cpp), and a path after the host.
_URI: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/\s]*/[^\s\\'\0]*[^\s\\'\0/]|/[^\s\\'\0]*[^\s\\'\0/]", re.IGNORECASE
)
#: Files of the sandbox that are the agent's and the executor's.
TAKEN: Final = frozenset({"containers", "executor.log", "hostfile", "stderr", "stdout"})
#: Time of each file that is sent along, 2000-01-01: an archive of the same files has the same digest. Zip archives
#: cannot hold 1970, and `make` is not led astray by one time for all.
SENT_AT: Final = 946_684_800
#: By the digest of an archive's bytes (gzip of tar).
UPLOAD: Final = Text(re.compile(r"sha256:[0-9a-f]{64}"), "sha256: and 64 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class Artifact:
    """What is fetched. An archive is one by its name's end (.tgz, .tar.gz, .zip, …)."""

    uri: str
    extract: bool = True  # an archive into the sandbox, beside what was fetched
    executable: bool = False  # to be made executable; then it is not extracted
    cache: bool = False  # Mesos' cache; taken, and not used: it is filled outside the task's cage
    dest_path: str | None = None  # below the sandbox; None: the last part of the URI

    @property
    def problem(self) -> str:
        """Why it cannot be fetched; "": it can."""
        if not _URI.fullmatch(self.uri):
            return f"{self.uri!r} is no URI of a file, as https://host/path/file, nor an absolute path of the agent"
        name = self.uri.rpartition("/")[2] if self.dest_path is None else self.dest_path
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in name:
            return f"{name!r} is no path of a file below the sandbox"
        if parts[0] in TAKEN:
            return f"{parts[0]} in the sandbox is the agent's or the executor's own; fetch it to another path"
        return ""

    def as_uri(self) -> Mapping[str, object]:
        """Write the artifact as CommandInfo.URI of mesos.proto."""
        output = {} if self.dest_path is None else {"output_file": self.dest_path}
        flags = {"extract": self.extract, "executable": self.executable, "cache": self.cache}
        return {"value": self.uri, **flags, **output}
