"""Delivery of secret values from the store to hosts: kept in memory only, and encrypted for the target host.

The engine requests the secrets that jobs wait for (`ReadSecrets`) and is notified of available ones; a launch takes
their values from here.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from mesos_gpu.adapters.secrets import envelope
from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.events import SecretsRead
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.secret import IMAGE_LOGIN, MAX_SECRET
from mesos_gpu.ports import SecretStore

_READERS: Final = 4  # concurrent reads, so that one slow secret does not block the others
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sealed:
    """Encrypted secrets of a launch. `problem`: reason why there are none, for people."""

    message: str = ""
    problem: str = ""


NO_SECRETS: Final = Sealed()


class Deliveries:
    """Values that were read for launches.

    Args:
        store: Store of the secrets.
        say: Callback for results of reads, on any thread.
    """

    def __init__(self, store: SecretStore, say: Callable[[SecretsRead], None]) -> None:
        self._store, self._say = store, say
        self._values: dict[str, bytes] = {}
        self._wanted: SimpleQueue[str | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def read(self, sources: Sequence[str]) -> None:
        """Read secrets, on up to `_READERS` threads; results are reported by the callback."""
        while len(self._threads) < _READERS:
            name = f"secrets {len(self._threads) + 1}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()
        for source in sources:
            self._wanted.put(source)

    def forget(self, sources: Sequence[str]) -> None:
        """Drop the values of secrets."""
        for source in sources:
            self._values.pop(source, None)

    def close(self) -> None:
        """Drop all values, and stop reading."""
        for _ in self._threads:
            self._wanted.put(None)
        self._values.clear()
        self._store.close()

    def sealed(self, launch: LaunchTask, node: Node | None) -> Sealed:
        """Return the secrets of a task, encrypted to its host for this launch only."""
        assert launch.spec is not None
        sources = {secret.name: secret.source for secret in launch.spec.secrets}
        if launch.image_secret:
            sources[IMAGE_LOGIN] = launch.image_secret
        values: dict[str, bytes] = {}
        for name, source in sources.items():
            value = self._values.get(source)
            if value is None:
                return Sealed(problem=f"the value of secret {source} was not available")
            values[name] = value
        if sum(map(len, values.values())) > MAX_SECRET:
            return Sealed(problem=f"its secrets have more than {MAX_SECRET} bytes in all")
        key = node.inventory.secrets_key if node is not None and node.inventory is not None else ""
        try:
            info = envelope.purpose(launch.task.id, launch.task.agent_id)
            return Sealed(envelope.seal(values, key, info))
        except ValueError:
            return Sealed(problem="its host has no key to encrypt secrets with")

    def _serve(self) -> None:
        while (source := self._wanted.get()) is not None:
            self._say(SecretsRead({source: self._read(source)}))

    def _read(self, source: str) -> str:
        """Read a secret. Return the reason of a failure; "" on success."""
        try:
            self._values[source] = self._store.read(source)
        except MesosGpuError as error:
            self._values.pop(source, None)
            logger.warning("secret %s: %s", source, error.what)
            return error.what
        except Exception as error:  # noqa: BLE001 - after any error the jobs wait, and the thread continues
            self._values.pop(source, None)
            # Neither text nor traceback is logged: they could contain parts of the secret.
            logger.error("secret %s could not be read: %s", source, type(error).__name__)
            return f"secret {source} could not be read: {type(error).__name__}"
        return ""
