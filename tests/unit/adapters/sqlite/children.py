"""Children of a test that are killed while they write a state."""

import os
import warnings
from collections.abc import Callable


def in_a_child(do: Callable[[], object]) -> tuple[int, str]:
    """Call a function in a forked child, which ends without a clean-up.

    Args:
        do: The function; it may end its process.

    Returns:
        The exit status, negative for a signal, and the text of what the function returned.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forks beside threads, which the child does not use
        pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, str(do()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), text
