"""Where `mesos-gpu` begins: a Ctrl-C ends it without a word while its modules are imported, as nothing is done yet."""

import signal

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
