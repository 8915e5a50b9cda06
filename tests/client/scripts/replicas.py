"""DistributedDataParallel over the ranks that torchrun starts, with accumulation."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        with model.no_sync():
            (model(x).square().mean() / 2).backward()
        (model(2 * x).square().mean() / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(*(parameter.double().sum().item().hex() for parameter in model.parameters()))
    # A rank that closes its connections while the other still reads from them resets these. The group is one of its
    # own, whose end waits for its threads: the replicas' group outlives its end, and a thread of it that still lets go
    # of a barrier when the interpreter ends aborts the process.
    dist.barrier(dist.new_group())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
