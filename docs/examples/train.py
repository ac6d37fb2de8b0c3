"""Training that saves its work and continues from it when it is started again; needs only the standard library.

mesos-gpu run --upload docs/examples --gpus 1 -- python3 train.py --lr 0.1
mesos-gpu submit docs/examples/sweep.yaml
"""

import argparse
import json
import os
import random
from pathlib import Path

TRUE = (3.0, -2.0, 0.5)  # parameters to learn: y = 3 a - 2 b + 0.5


def batch(dice: random.Random, size: int = 32) -> list[tuple[tuple[float, float, float], float]]:
    """Inputs, the last of which is 1, and what they should give."""
    inputs = [(dice.uniform(-1, 1), dice.uniform(-1, 1), 1.0) for _ in range(size)]
    return [(x, sum(w * v for w, v in zip(TRUE, x, strict=True)) + dice.gauss(0, 0.01)) for x in inputs]


def step(weights: list[float], lr: float, dice: random.Random) -> float:
    """One step down the gradient; the mean squared error before it."""
    seen = batch(dice)
    errors = [sum(w * v for w, v in zip(weights, x, strict=True)) - y for x, y in seen]
    for i in range(len(weights)):
        slope = sum(2 * error * x[i] for error, (x, _) in zip(errors, seen, strict=True)) / len(seen)
        weights[i] -= lr * slope
    return sum(error**2 for error in errors) / len(seen)


def keep(path: Path, epoch: int, weights: list[float]) -> None:
    """Whole, or not at all: a job can end at any moment. Then tell the scheduler that work is kept."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"epoch": epoch, "weights": weights}))
    new.replace(path)
    if told := os.environ.get("MESOS_GPU_CHECKPOINT"):
        Path(told).touch()


def is_to_end() -> bool:
    """Whether somebody else needs the GPUs; see docs/notices.md."""
    notice = Path(os.environ.get("MESOS_GPU_NOTICE", "/nonexistent"))
    return notice.exists() and not json.loads(notice.read_text())["recalled"]


def main() -> int:
    """75, EX_TEMPFAIL, asks to be started again."""
    options = argparse.ArgumentParser()
    options.add_argument("--lr", type=float, default=0.1)
    options.add_argument("--epochs", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--checkpoint", type=Path, default=Path("checkpoint.json"))
    asked = options.parse_args()
    epoch, weights, loss = 0, [0.0, 0.0, 0.0], 0.0
    if asked.checkpoint.exists():
        kept = json.loads(asked.checkpoint.read_text())
        epoch, weights = kept["epoch"], kept["weights"]
        print(f"going on after epoch {epoch}")
    while epoch < asked.epochs:
        dice = random.Random(asked.seed * 1000 + epoch)
        loss = sum(step(weights, asked.lr, dice) for _ in range(20)) / 20
        epoch += 1
        keep(asked.checkpoint, epoch, weights)
        print(f"epoch {epoch} lr {asked.lr} loss {loss:.6f}")
        if is_to_end():
            return 75
    print(f"weights {' '.join(f'{weight:.3f}' for weight in weights)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
