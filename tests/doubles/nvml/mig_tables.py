"""Profiles of cards in MIG mode, for tests; real hosts read them from NVML.

Source: NVIDIA's MIG User Guide, "Supported MIG Profiles" and the placements of `nvidia-smi mig -lgipp`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.shares.card import MigProfile
from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class MigTable:
    """A card's slices and profiles.

    Attributes:
        memory_slices, compute_slices: Slices of memory and of compute of the whole card.
        sm_count: Streaming multiprocessors of the card.
        rows: Number, name, NVML_GPU_INSTANCE_PROFILE_*, compute slices, SMs, MiB, starts and width of each profile.
    """

    memory_slices: int
    compute_slices: int
    sm_count: int
    rows: tuple[tuple[int, str, int, int, int, int, tuple[int, ...], int], ...]

    def profiles(self) -> tuple[MigProfile, ...]:
        """Return the profiles that a host reports if it creates instances: those without extensions ("+me", "-me")."""
        return tuple(
            MigProfile(
                name, number, memory_mib, slices * WHOLE // self.compute_slices,
                width * WHOLE // self.memory_slices, starts, width,
            )
            for number, name, _, slices, _, memory_mib, starts, width in self.rows
            if not {"+", "-"} & set(name)
        )  # fmt: skip


_ANY: Final = tuple(range(7))
MIG_TABLES: Final[Mapping[str, MigTable]] = MappingProxyType(
    {
        "NVIDIA H100 80GB HBM3": MigTable(
            8,
            7,
            132,
            (
                (19, "1g.10gb", 0x0, 1, 16, 9984, _ANY, 1),
                (20, "1g.10gb+me", 0x7, 1, 16, 9984, _ANY, 1),
                (15, "1g.20gb", 0x9, 1, 26, 20096, (0, 2, 4, 6), 2),
                (14, "2g.20gb", 0x1, 2, 32, 20096, (0, 2, 4), 2),
                (9, "3g.40gb", 0x2, 3, 60, 40448, (0, 4), 4),
                (5, "4g.40gb", 0x3, 4, 64, 40448, (0,), 4),
                (0, "7g.80gb", 0x4, 7, 132, 80896, (0,), 8),
            ),
        ),
        "NVIDIA A30": MigTable(
            4,
            4,
            56,
            (
                (14, "1g.6gb", 0x0, 1, 14, 5952, (0, 1, 2, 3), 1),
                (21, "1g.6gb+me", 0x7, 1, 14, 5952, (0, 1, 2, 3), 1),
                (5, "2g.12gb", 0x1, 2, 28, 11968, (0, 2), 2),
                (0, "4g.24gb", 0x3, 4, 56, 24064, (0,), 4),
            ),
        ),
        "NVIDIA RTX PRO 6000 Blackwell Server Edition": MigTable(
            12,
            4,
            188,
            (
                (14, "1g.24gb", 0x0, 1, 46, 24192, (0, 3, 6, 9), 3),
                (21, "1g.24gb+me", 0x7, 1, 46, 24192, (0, 3, 6, 9), 3),
                (67, "1g.24gb-me", 0xD, 1, 46, 24192, (0, 3, 6, 9), 3),
                (5, "2g.48gb", 0x1, 2, 94, 48512, (0, 6), 6),
                (0, "4g.96gb", 0x3, 4, 188, 97280, (0,), 12),
            ),
        ),
    }
)
