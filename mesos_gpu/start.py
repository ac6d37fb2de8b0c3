"""Entry point of `mesos-gpu`. While modules are imported, Ctrl-C ends the process silently, as nothing is done yet.

Garbage collection is made rare, and suppressed at the end: nearly all objects from imports stay alive, and collections
would take a fifth of the time of imports.
"""

import atexit
import gc
import signal

gc.set_threshold(50_000, 10, 10)
atexit.register(gc.freeze)
_BEFORE = signal.getsignal(signal.SIGINT)
if _BEFORE is signal.default_int_handler:  # else the parent process has made us ignore it
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command line, in which Ctrl-C raises KeyboardInterrupt."""
    from mesos_gpu.cli import main as command_line

    signal.signal(signal.SIGINT, _BEFORE)
    try:
        command_line(prog_name="mesos-gpu")
    finally:
        if _BEFORE is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
