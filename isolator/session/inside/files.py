"""Files of a task: listed, read, written. Runs where the task is and with no more rights, by `isolator.runs.joined`.

What it reads it writes to its stdout as records (`mesos_gpu.wire.channel.tree`); what it writes comes by its stdin, and
what fails goes to its stdout. All that it needs is imported before it gets there.
"""

import os
from collections.abc import Iterator

from mesos_gpu.adapters.trees.receiving import Receiving
from mesos_gpu.adapters.trees.sending import Sending, listed
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.file import GET, PUT
from mesos_gpu.wire.channel.tree import Decoder, Done, Mark, Said

STDIN, STDOUT = 0, 1
FAULTY, BROKEN = 1, 2  # exit codes: something is not copied; the rest never came


def main(words: tuple[str, ...]) -> int:
    """Do what the words say.

    Args:
        words: The task's directory, from which paths are meant; and what `FileOrder` says.

    Returns:
        The exit code: 0, `FAULTY` or `BROKEN`.
    """
    directory, what, path, name = words
    try:
        os.chdir(directory)
    except OSError as error:
        _write(tree.said(Mark.FAULT, Said((), f"the task's directory cannot be entered: {error.strerror}")))
        _write(tree.done(Done(0, 0, 1)))
        return FAULTY
    if what == PUT:
        return _put(path or ".", name)
    return _get(path or ".") if what == GET else _list(path or ".")


def _list(path: str) -> int:
    _written(listed(path))
    return 0


def _get(path: str) -> int:
    sending = Sending(path)
    _written(sending.records())
    return FAULTY if sending.faults else 0


def _put(path: str, name: str) -> int:
    """Write what comes. Without its end nothing more is said: who sent it has gone."""
    decoder = Decoder()
    receiving = Receiving(path, name, lambda said: _write(tree.said(Mark.FAULT, said)))
    try:
        while not decoder.is_whole and (piece := os.read(STDIN, tree.MAX_DATA)):
            for record in decoder.take(piece):
                receiving.take(record)
    except ValueError:
        return BROKEN
    finally:
        receiving.close()
    if not decoder.is_whole:
        return BROKEN
    _write(tree.done(Done(receiving.files, receiving.bytes, receiving.faults)))
    return FAULTY if receiving.faults else 0


def _written(records: Iterator[bytes]) -> None:
    for record in records:
        _write(record)


def _write(record: bytes) -> None:
    view = memoryview(record)
    while view:
        view = view[os.write(STDOUT, view) :]
