"""A program that uses PyTorch: it prints 0 when it has started, then answers expressions on stdin, one a line.

It runs with any PyTorch since 1.13, also without a card, which proves its code. Sizes are MiB.
"""

import sys
import time
from typing import Any

import torch
from torch import nn

MIB = 1 << 20
has_card = torch.cuda.is_available()
device = torch.device("cuda" if has_card else "cpu")
BLOCKS = {26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}  # by the number of layers, He et al. 2015
held: list[Any] = []
work: list[Any] = []  # what a step does


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Three convolutions and a way round them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width

        def one(here: int, there: int, size: int, step: int = 1) -> list[Any]:
            return [nn.Conv2d(here, there, size, step, size // 2, bias=False), nn.BatchNorm2d(there)]

        self.way = nn.Sequential(
            *one(before, width, 1),
            nn.ReLU(True),
            *one(width, width, 3, stride),
            nn.ReLU(True),
            *one(width, after, 1),
        )
        self.round = (
            nn.Sequential(*one(before, after, 1, stride)) if stride > 1 or before != after else nn.Identity()
        )

    def forward(self, x: Any) -> Any:
        """Add both ways."""
        return torch.relu(self.way(x) + self.round(x))


def resnet(layers: int) -> Any:
    """ResNet for images of 1000 kinds."""
    parts: list[Any] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 64
    for number, blocks in enumerate(BLOCKS[layers]):
        for block in range(blocks):
            parts.append(Bottleneck(before, 64 << number, 2 if block == 0 and number else 1))
            before = 256 << number
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)).to(device)


def images(batch: int, size: int) -> Any:
    return torch.randn(batch, 3, size, size, device=device)


def learn(layers: int, batch: int, size: int = 224) -> None:
    """Have `seconds` measure steps of a training in half precision."""
    model, batch_of, kinds = resnet(layers), images(batch, size), torch.randint(1000, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def one() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch_of), kinds)
        loss.backward()
        optimizer.step()

    measure(one)


def infer(layers: int, batch: int, size: int = 224) -> None:
    """Have `seconds` measure inferences in half precision."""
    model, batch_of = resnet(layers).eval(), images(batch, size)

    def one() -> None:
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
            model(batch_of)

    measure(one)


def measure(one: Any, before: int = 3) -> None:
    work[:] = [one]
    seconds(before)


def sync() -> None:
    if has_card:
        torch.cuda.synchronize()


def seconds(steps: int) -> float:
    """How long a step takes, of so many."""
    sync()
    began = time.monotonic()
    for _ in range(steps):
        work[0]()
    sync()
    return (time.monotonic() - began) / steps


def fill(chunk_mib: int, most_mib: int) -> int:
    """Take memory until there is none; how much that was, MiB."""
    taken_mib = 0
    try:
        while taken_mib < most_mib:
            held.append(torch.empty(chunk_mib * MIB, dtype=torch.uint8, device=device))
            taken_mib += chunk_mib
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
        if "out of memory" not in str(error):
            raise
    return taken_mib


def let_go() -> None:
    held.clear()
    if has_card:
        torch.cuda.empty_cache()


def info() -> tuple[int, int]:
    """What is free and in all, MiB."""
    left, total = torch.cuda.mem_get_info()
    return left // MIB, total // MIB


def graph(times: int) -> float:
    """Capture work into a graph, run it, and compare: the largest difference to the same without a graph."""
    a = torch.randn(512, 512, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.relu(a @ a)  # what is made for the first call is not captured
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = torch.relu(a @ a) * 2
    for _ in range(times):
        a.copy_(torch.randn(512, 512, device=device))
        captured.replay()
    sync()
    return float((out - torch.relu(a @ a) * 2).abs().max())


def called() -> list[str]:
    """Functions of CUDA that a step of a training calls, as PyTorch's profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_card else [])]
    with profile(activities=kinds) as seen:
        seconds(1)
    return sorted({event.key for event in seen.key_averages() if event.key.startswith("cu")})


print(0, flush=True)
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
