"""Named schedulers of `mesos-gpu context`."""

import re
from typing import Final

import msgspec

from mesos_gpu.cli.reach import private
from mesos_gpu.errors import Damaged, NotFound

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Context(msgspec.Struct, frozen=True):
    """Address and TLS files of a scheduler; absolute paths, "" for none."""

    url: str
    cacert: str = ""
    cert: str = ""
    key: str = ""
    insecure_http_token: bool = False


class Contexts(msgspec.Struct, frozen=True):
    """All contexts of a user; `current` is the one used by default, "" for none."""

    current: str = ""
    contexts: dict[str, Context] = {}

    def find(self, name: str) -> Context:
        """Return a context by name.

        Raises:
            NotFound: No context has this name.
        """
        if name not in self.contexts:
            names = ", ".join(sorted(self.contexts)) or "none yet"
            raise NotFound(
                f"no context is called {name!r}; existing contexts: {names}",
                remedy="add it with: mesos-gpu context add NAME --url URL",
            )
        return self.contexts[name]


def load() -> Contexts:
    """Read the contexts.

    Raises:
        BadConfiguration: Other users could have read or changed the file.
        Damaged: The file is invalid.
    """
    path = private.config_home() / private.CONTEXTS
    data = private.read(path)
    if data is None:
        return Contexts()
    try:
        return msgspec.json.decode(data, type=Contexts)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(
            f"{path} is not a valid file of `mesos-gpu context` ({error})",
            remedy="remove this file and add the contexts again",
        ) from error


def save(contexts: Contexts) -> None:
    """Write the contexts. The caller holds `private.locked`."""
    data = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
    private.write(private.config_home() / private.CONTEXTS, data + b"\n")
