"""A small GPT, as nanoGPT trains one: at module level, with accumulation, two groups of AdamW, a rate that the loop
sets, clipping, evaluation, and torch.compile if asked for."""

import math
import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from training import GPT

gradient_accumulation_steps = 3
torch.manual_seed(1337)
torch.set_num_threads(1)
ctx = torch.autocast("cpu", torch.bfloat16) if "--bfloat16" in sys.argv else nullcontext()
scaler = torch.amp.GradScaler("cpu", enabled=False)
model = GPT(fused=True, dropout=0.1)
groups = [
    {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
if "--compile" in sys.argv:
    model = torch.compile(model, backend="aot_eager")


def get_batch():
    tokens = torch.randint(0, 48, (4, 13))
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(x, y):
    with ctx:
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [loss_of(*get_batch()).item() for _ in range(3)]
    model.train()
    return sum(losses) / 3


X, Y = get_batch()
for step in range(4):
    for group in optimizer.param_groups:
        group["lr"] = 5e-4 * (1.0 + math.cos(math.pi * step / 4))
    if step % 2 == 0:
        print("estimate", estimate_loss().hex())
    for _micro_step in range(gradient_accumulation_steps):
        loss = loss_of(X, Y) / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(step, loss.item().hex())
