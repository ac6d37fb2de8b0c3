"""Program that lists, reads and writes files of a task, in its namespaces and with its rights
(`isolator.runs.joined`).

It writes what it reads to stdout as records (`mesos_gpu.wire.channel.tree`); what it writes comes by stdin,
and errors go to stdout. All that it needs is imported before it joins the task.
"""

import os
from collections.abc import Iterator

from mesos_gpu.adapters.trees.receiving import Receiving
from mesos_gpu.adapters.trees.sending import Sending, listed
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.file import GET, PUT
from mesos_gpu.wire.channel.tree import Decoder, Done, Mark, Said

STDIN, STDOUT = 0, 1
FAULTY, BROKEN = 1, 2  # exit codes: some files were not copied; the transfer was cut short


def main(words: tuple[str, ...]) -> int:
    """Carry out an order on files.

    Args:
        words: Directory of the task, to which paths are relative, followed by the fields of `FileOrder`.

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
    """Write the received files; if the transfer is cut short, nothing is reported, as the sender is gone."""
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
