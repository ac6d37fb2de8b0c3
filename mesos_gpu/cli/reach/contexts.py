"""Schedulers by names of one's own: `mesos-gpu context`."""

import re
from typing import Final

import msgspec

from mesos_gpu.cli.reach import private
from mesos_gpu.errors import Damaged, NotFound

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Context(msgspec.Struct, frozen=True):
    """A scheduler, and whom to believe there. Files are absolute paths; "": none."""

    url: str
    cacert: str = ""
    cert: str = ""
    key: str = ""
    insecure_http_token: bool = False


class Contexts(msgspec.Struct, frozen=True):
    """All of a user; `current`: which one is used where nothing else is said; "": none."""

    current: str = ""
    contexts: dict[str, Context] = {}

    def find(self, name: str) -> Context:
        """Look one up by its name.

        Raises:
            NotFound: There is no such.
        """
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none yet"
            raise NotFound(
                f"there is no context {name!r}; there are: {known}",
                remedy="add it: mesos-gpu context add NAME --url URL",
            )
        return self.contexts[name]


def load() -> Contexts:
    """Read them.

    Raises:
        BadConfiguration: Others may have read or changed the file.
        Damaged: It is not what `mesos-gpu context` writes.
    """
    path = private.config_home() / private.CONTEXTS
    data = private.read(path)
    if data is None:
        return Contexts()
    try:
        return msgspec.json.decode(data, type=Contexts)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(
            f"{path} is not what `mesos-gpu context` writes ({error})", remedy="remove it"
        ) from error


def save(contexts: Contexts) -> None:
    """Write them. The caller has `private.locked`."""
    data = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
    private.write(private.config_home() / private.CONTEXTS, data + b"\n")
