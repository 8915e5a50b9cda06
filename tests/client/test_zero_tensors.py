"""A Hessian-vector product by forward mode over reverse, whose derivatives stand for zeros without holding any, trains
watched as it does unwatched. In a process of its own, since PyTorch once ended it."""

from __future__ import annotations

import json
import subprocess
import sys

TRAINING = """
import json, sys, torch, plumbline
from torch.func import grad, jvp

def train(address):
    torch.manual_seed(0)
    net, x, v = torch.nn.Linear(5, 5), torch.randn(4, 5), torch.ones(4, 5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    audit = plumbline.watch(net, optimizer, address, job="zeros", every=1) if address else None
    losses = []
    for _ in range(2):
        with audit.step() if audit else torch.enable_grad():
            product = jvp(grad(lambda u: (u**3).sum() + (2 * u + 1).sum()), (net(x),), (v,))[1]
            loss = product.square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    assert audit is None or audit.flush(60), audit.errors()
    return losses, [verdict.verdict for verdict in audit.verdicts()] if audit else None

print(json.dumps([train(None), train(sys.argv[1])]))
"""


def test_a_hessian_vector_product_by_forward_mode(server: str) -> None:
    ran = subprocess.run([sys.executable, "-c", TRAINING, server], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (alone, _), (watched, verdicts) = json.loads(ran.stdout.splitlines()[-1])
    assert watched == alone
    assert verdicts == ["TYPE_I", "TYPE_I"]
