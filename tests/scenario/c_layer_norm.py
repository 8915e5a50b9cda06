"""Layer normalisation and cross entropy written out against the fused operations, forward and backward."""

import torch
import torch.nn.functional as F
from models import VOCABULARY, LanguageModel, gradients, sentences
from scenario import TYPE_I, Program, scenario


class WrittenOut(LanguageModel):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.hidden(self.embed(tokens)))
        centred = h - h.mean(-1, keepdim=True)
        normed = centred * (centred.square().mean(-1, keepdim=True) + self.norm.eps).rsqrt()
        return self.head(normed * self.norm.weight + self.norm.bias)


@scenario("written-out layers", "layer norm and cross entropy written out against fused", size=(4, 16), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    theirs = LanguageModel(16).to(dtype)
    mine = WrittenOut(16).to(dtype)
    mine.load_state_dict(theirs.state_dict())
    inputs, targets = sentences(size, 8, seed, uneven=False)
    targets = targets.flatten()

    def written_out() -> dict[str, torch.Tensor]:
        logits = mine(inputs).view(-1, VOCABULARY)
        loss = -logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(mine)}

    def fused() -> dict[str, torch.Tensor]:
        loss = F.cross_entropy(theirs(inputs).view(-1, VOCABULARY), targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(theirs)}

    return written_out, fused
