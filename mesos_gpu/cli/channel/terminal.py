"""The user's terminal while a command in a task has it."""

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


def size_of(descriptor: int) -> tuple[int, int]:
    """Rows and columns; 24 by 80 where it is no terminal."""
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        return 24, 80
    return rows, columns


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too; what was set before is set again at the end."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed before goes to the command, too
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
