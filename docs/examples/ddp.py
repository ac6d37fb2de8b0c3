"""Data-parallel training by torch.distributed, on GPUs (NCCL) or without any (Gloo).

    mesos-gpu run --upload docs/examples --tasks 2 --gpus 1 -- torchrun ddp.py
    mesos-gpu cp JOB:checkpoint.pt .

The environment of each task has the number of tasks, its rank, and the address of the first one (PET_*), so torchrun
needs no options. Rank 0 writes the checkpoint into its own sandbox.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def device_of() -> torch.device:
    """The card of this process, of those that its task has."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def keep(model: DistributedDataParallel, step: int, path: Path) -> None:
    """Whole, or not at all."""
    new = path.with_suffix(".new")
    torch.save({"step": step, "model": model.module.state_dict()}, new)
    new.replace(path)
    if told := os.environ.get("MESOS_GPU_CHECKPOINT"):
        Path(told).touch()


def train(asked: argparse.Namespace) -> None:
    """Learn what a model that all know computes, each rank from data of its own."""
    rank, device = dist.get_rank(), device_of()
    print(f"rank {rank} of {dist.get_world_size()} on {device}, {dist.get_backend()}")
    torch.manual_seed(0)
    teacher = torch.nn.Linear(16, 4).to(device)
    model = DistributedDataParallel(torch.nn.Linear(16, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=asked.lr)
    data = torch.Generator(device).manual_seed(rank + 1)
    for step in range(1, asked.steps + 1):
        inputs = torch.randn(64, 16, device=device, generator=data)
        loss = torch.nn.functional.mse_loss(model(inputs), teacher(inputs).detach())
        optimizer.zero_grad()
        loss.backward()  # the ranks' gradients become their mean here
        optimizer.step()
        if step % asked.every == 0:
            print(f"rank {rank} step {step} loss {loss.item():.6f}")
            if rank == 0:
                keep(model, step, asked.checkpoint)
    dist.barrier()


def main() -> None:
    """What torchrun starts, once for each card of a task."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--every", type=int, default=20)
    options.add_argument("--lr", type=float, default=0.05)
    options.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    asked = options.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(device_of())
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(asked)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
