"""Layer normalisation and cross entropy written out against the fused operations, forward and backward."""

import copy

import torch
import torch.nn.functional as F
from models import VOCABULARY, LanguageModel, gradients, sentences
from scenario import TYPE_I, Program, scenario


@scenario("written-out layers", "layer norm and cross entropy written out against fused", size=(4, 16), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mine = LanguageModel(16).to(dtype)
    theirs = copy.deepcopy(mine)
    inputs, targets = sentences(size, 8, seed, uneven=False)
    targets = targets.flatten()

    def written_out() -> dict[str, torch.Tensor]:
        h = F.gelu(mine.hidden(mine.embed(inputs)))
        centred = h - h.mean(-1, keepdim=True)
        normed = centred * (centred.square().mean(-1, keepdim=True) + mine.norm.eps).rsqrt()
        logits = mine.head(normed * mine.norm.weight + mine.norm.bias).view(-1, VOCABULARY)
        loss = (logits.logsumexp(-1) - logits.gather(1, targets[:, None]).squeeze(1)).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(mine)}

    def fused() -> dict[str, torch.Tensor]:
        loss = F.cross_entropy(theirs(inputs).view(-1, VOCABULARY), targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(theirs)}

    return written_out, fused
