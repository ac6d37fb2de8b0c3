"""What each task of a soak does: it holds its cards by locks that the kernel keeps, and writes down what it saw.

`python3 -IS work.py DIRECTORY NUMBER SLOTS SECONDS MODE` needs no other module of ours. A card has four slots, each a
file: a whole card is all of them. Who cannot lock as many as it was given writes `double`, for others have the card,
too; who cannot lock its own work writes `twice`. Lines are JSON, each one write to a file that all append to.
"""

import fcntl
import json
import os
import socket
import struct
import sys
import time

SLOTS_OF_CARD = 4
RETRIES = 5  # of a share: another may end while the slots are tried in turn, and a third begin
INSTANCES = 16  # of an app, at most
SIOCGIFADDR = 0x8915  # netdevice(7)


def lock(path: str) -> bool:
    """Hold a file's lock until this process and its children have ended; whether nobody else does."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


def lock_slots(card: str, wanted: int) -> int:
    """Lock so many slots of a card, given as the path that the slots' names begin with; how many it got."""
    mine: set[int] = set()
    for _ in range(1 if wanted == SLOTS_OF_CARD else RETRIES):
        for slot in range(SLOTS_OF_CARD):
            if len(mine) < wanted and slot not in mine and lock(f"{card}.{slot}"):
                mine.add(slot)
        if len(mine) == wanted:
            break
        time.sleep(0.05)
    return len(mine)


def host() -> str:
    """The address of the network namespace's card; "": it has none of that name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            told = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", b"eth0"))
        except OSError:
            return ""
    return socket.inet_ntoa(told[20:24])


class Work:
    """The work of a task."""

    def __init__(self, directory: str, number: str, mode: str) -> None:
        """Nothing is held yet."""
        self._directory, self._number, self._mode = directory, int(number), mode
        self._rank = int(os.environ.get("RANK", "0"))
        given = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
        self._cards = [card for card in given if card.startswith("GPU-")]

    def say(self, word: str) -> None:
        """Append a line."""
        line = {
            "word": word,
            "at": time.time(),
            "number": self._number,
            "rank": self._rank,
            "task": os.environ.get("MESOS_TASK_ID", ""),
            "cards": self._cards,
            "host": host(),
        }
        file = os.open(f"{self._directory}/said", os.O_WRONLY | os.O_APPEND)
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)

    def begin(self, slots: int) -> None:
        """Hold what it was given."""
        locked = [lock_slots(f"{self._directory}/cards/{card}", slots) for card in self._cards]
        if min(locked, default=slots) < slots:
            self.say("double")
        run = f"{self._directory}/run/{self._number}"
        if self._mode == "app":
            any(lock(f"{run}.{instance}") for instance in range(INSTANCES))
        elif not lock(f"{run}.{self._rank}"):
            self.say("twice")
        self.say("begin")

    def straggle(self) -> None:
        """Leave a child in a session of its own that holds all this, too: it must be ended with the task."""
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)


def main() -> None:
    """Hold, wait, say that it is done."""
    directory, number, slots, seconds, mode = sys.argv[1:]
    os.umask(0)
    work = Work(directory, number, mode)
    work.begin(int(slots))
    if mode == "straggler":
        work.straggle()
    time.sleep(float(seconds))
    if mode != "silent":  # a planted fault
        work.say("end")


if __name__ == "__main__":
    main()
