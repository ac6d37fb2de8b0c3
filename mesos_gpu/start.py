"""Where `mesos-gpu` begins: a Ctrl-C ends it without a word while its modules are imported, as nothing is done yet.

Python's looks for garbage are made rare, and none is made at the end: nearly all that imports make stays, and looking
takes a fifth of their time.
"""

import atexit
import gc
import signal

gc.set_threshold(50_000, 10, 10)
atexit.register(gc.freeze)
_BEFORE = signal.getsignal(signal.SIGINT)
if _BEFORE is signal.default_int_handler:  # else whoever started us had it ignored
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command line; a Ctrl-C is a KeyboardInterrupt from here to its end."""
    from mesos_gpu.cli import main as command_line

    signal.signal(signal.SIGINT, _BEFORE)
    try:
        command_line(prog_name="mesos-gpu")
    finally:
        if _BEFORE is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
