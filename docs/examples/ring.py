"""Data-parallel training without any library: a ring of sockets sums the gradients of all ranks.

    mesos-gpu run --upload docs/examples --tasks 3 -- python3 ring.py

It uses only the rank, and the host and port of each task (docs/jobs.md). So it shows whether hosts reach each other at
the ports that Mesos gave, before a library fails with its own error.
"""

import argparse
import json
import os
import random
import socket
import struct
import time
from pathlib import Path

TRUE = (3.0, -2.0, 0.5)


class Ring:
    """The connection from the rank before, and the one to the rank behind."""

    def __init__(self, rank: int, members: list[str]) -> None:
        """Wait for both. `members`: HOST:PORT of all, by rank."""
        self.size = len(members)
        host, _, port = members[rank].rpartition(":")
        with socket.create_server((host, int(port)), family=socket.AF_INET) as server:
            self._behind = self._reach(members[(rank + 1) % self.size])
            self._before, _ = server.accept()

    @staticmethod
    def _reach(member: str, patience_s: float = 60.0) -> socket.socket:
        host, _, port = member.rpartition(":")
        give_up_at = time.monotonic() + patience_s
        while True:
            try:
                return socket.create_connection((host, int(port)), timeout=patience_s)
            except ConnectionRefusedError:  # it has not begun to listen
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.05)

    def mean(self, own: list[float]) -> list[float]:
        """The mean of what all ranks have, of each number: each is handed on until all had it."""
        total, passing = list(own), list(own)
        for _ in range(self.size - 1):
            self._behind.sendall(struct.pack(f"!{len(own)}d", *passing))
            passing = list(struct.unpack(f"!{len(own)}d", self._take(8 * len(own))))
            total = [a + b for a, b in zip(total, passing, strict=True)]
        return [number / self.size for number in total]

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._before.recv(size - len(data))
            if not piece:
                raise ConnectionError("the rank before has ended")
            data += piece
        return data


def gradient(weights: list[float], dice: random.Random) -> list[float]:
    """Of the mean squared error over a batch of this rank's own; the error itself is the last number."""
    inputs = [(dice.uniform(-1, 1), dice.uniform(-1, 1), 1.0) for _ in range(32)]
    errors = [sum((w - t) * v for w, t, v in zip(weights, TRUE, x, strict=True)) for x in inputs]
    slopes = [sum(2 * e * x[i] for e, x in zip(errors, inputs, strict=True)) / len(inputs) for i in range(3)]
    return [*slopes, sum(error**2 for error in errors) / len(errors)]


def main() -> None:
    """Train, and keep what was learnt, all of which have: rank 0 has it in checkpoint.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--pause", type=float, default=0.0, help="seconds after each ten steps")
    asked = options.parse_args()
    rank = int(os.environ["RANK"])
    alone = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    members = (
        json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"] if "TF_CONFIG" in os.environ else [alone]
    )
    ring, dice, weights = Ring(rank, members), random.Random(rank), [0.0, 0.0, 0.0]
    print(f"rank {rank} of {ring.size} at {members[rank]}")
    for step in range(1, asked.steps + 1):
        *slopes, loss = ring.mean(gradient(weights, dice))
        weights = [weight - 0.2 * slope for weight, slope in zip(weights, slopes, strict=True)]
        if step % 10 == 0:
            print(f"step {step} loss {loss:.9f}")
            kept = Path(f"checkpoint-{rank}.new")
            kept.write_text(json.dumps({"step": step, "weights": weights}))
            kept.replace("checkpoint.json")
            time.sleep(asked.pause)


if __name__ == "__main__":
    main()
