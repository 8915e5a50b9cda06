"""Which box of a distributed tensor a rank holds."""

from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from plumbline.shards import Part, local, named, part_of

RANKS = (2, 2)


def held(rank: int, shape: Sequence[int], part: Sequence[int], *placements: Placement) -> Part | None:
    """As one of four ranks, which talk to nobody, sees it."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
    try:
        mesh, stride = init_device_mesh("cpu", RANKS), torch.empty(shape).stride()
        whole = DTensor.from_local(
            torch.zeros(part), mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
        )
        assert tuple(local(whole).shape) == tuple(part)
        return part_of(whole)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("rank", range(4))
def test_boxes(rank: int) -> None:
    row, column = divmod(rank, 2)
    assert held(rank, (6, 8), (3, 4), Shard(0), Shard(1)) == ((6, 8), (3 * row, 4 * column))
    assert held(rank, (6, 8), (3, 8), Replicate(), Shard(0)) == ((6, 8), (3 * column, 0))
    # Uneven: two rows, then one; of one row the second has nothing.
    assert held(rank, (3, 8), (2 - row, 8), Shard(0), Replicate()) == ((3, 8), (2 * row, 0))
    assert held(rank, (1, 8), (1 - row, 8), Shard(0), Replicate()) == ((1, 8), (row, 0))
    # FSDP over tensor parallelism cuts each rank's rows again.
    strided = _StridedShard(0, split_factor=2)
    assert held(rank, (8, 2), (2, 2), strided, Shard(0)) == ((8, 2), (4 * column + 2 * row, 0))


def test_what_is_no_box() -> None:
    assert held(0, (8,), (8,), Partial(), Replicate()) is None
    assert held(0, (8,), (4,), _StridedShard(0, split_factor=2), Replicate()) is None
    assert part_of(torch.zeros(3)) is None


def test_what_cannot_be_told_has_a_name_of_its_own() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (4,))
        assert named("w", DTensor.from_local(torch.zeros(2), mesh, [Shard(0)], run_check=False)) == "w"
        assert named("w", DTensor.from_local(torch.zeros(2), mesh, [Partial()], run_check=False)) == "w[part]"
        assert named("w", torch.zeros(2)) == "w"
    finally:
        dist.destroy_process_group()
