"""Control of the user's terminal while a command in a task uses it."""

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


def size_of(descriptor: int) -> tuple[int, int]:
    """Return rows and columns of a terminal; 24 by 80 if the descriptor is not a terminal."""
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        return 24, 80
    return rows, columns


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Put the terminal into raw mode, so that every key (Ctrl-C too) goes to the command; restore it at the end."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # keeps input that was typed before
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
