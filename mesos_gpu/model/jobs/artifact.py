"""Files that are put into a task's sandbox before it starts: by Mesos' fetcher, or from the submitter's upload."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.jobs.fields import Text

#: URIs that the fetcher accepts (Fetcher::basename in slave/containerizer/fetcher.cpp) and that have a path.
_URI: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/\s]*/[^\s\\'\0]*[^\s\\'\0/]|/[^\s\\'\0]*[^\s\\'\0/]", re.IGNORECASE
)
#: Names in the sandbox that the agent and the executor use.
TAKEN: Final = frozenset({"containers", "executor.log", "hostfile", "stderr", "stdout"})
#: Time stamp of each uploaded file, 2000-01-01, so that archives of equal files have equal digests. Zip archives
#: cannot store 1970, and `make` works with one time stamp for all files.
SENT_AT: Final = 946_684_800
#: Id of an upload: digest of the archive's bytes (gzip of tar).
UPLOAD: Final = Text(re.compile(r"sha256:[0-9a-f]{64}"), "sha256: and 64 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file for Mesos' fetcher. The end of its name tells whether it is an archive (.tgz, .tar.gz, .zip, …)."""

    uri: str
    extract: bool = True  # whether an archive is extracted into the sandbox, where the archive stays too
    executable: bool = False  # whether it is made executable; then it is not extracted
    cache: bool = False  # accepted but not used, as Mesos fills its cache outside the task's isolation
    dest_path: str | None = None  # path relative to the sandbox; None for the last part of the URI

    @property
    def problem(self) -> str:
        """Reason why it cannot be fetched; "" if it can."""
        if not _URI.fullmatch(self.uri):
            return f"{self.uri!r} is neither a URI of a file (https://host/path/file) nor an absolute path on the agent"
        name = self.uri.rpartition("/")[2] if self.dest_path is None else self.dest_path
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in name:
            return f"{name!r} is not a path of a file below the sandbox; give a relative path without '..'"
        if parts[0] in TAKEN:
            return f"{parts[0]} is used by the agent or the executor in the sandbox; fetch the file to another path"
        return ""

    def as_uri(self) -> Mapping[str, object]:
        """Return the artifact as CommandInfo.URI of mesos.proto."""
        output = {} if self.dest_path is None else {"output_file": self.dest_path}
        flags = {"extract": self.extract, "executable": self.executable, "cache": self.cache}
        return {"value": self.uri, **flags, **output}
