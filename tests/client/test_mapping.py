"""Programs whose tensors are laid out otherwise: transposed, fused."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline
from plumbline.mapping import concat, transpose

WIDTH = 8


class Fused(nn.Module):
    """Queries, keys and values by one product, weights stored as [in, out], as GPT-2 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 3 * WIDTH) / 3)
        self.bias = nn.Parameter(torch.randn(3 * WIDTH) / 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (x @ self.weight + self.bias).chunk(3, -1)
        return torch.softmax(q @ k.T, -1) @ v


class Separate(nn.Module):
    def __init__(self, fused: Fused) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        with torch.no_grad():
            parts = zip((self.q, self.k, self.v), fused.weight.chunk(3, 1), fused.bias.chunk(3), strict=True)
            for linear, weight, bias in parts:
                linear.weight.copy_(weight.T)
                linear.bias.copy_(bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.q(x) @ self.k(x).T, -1) @ self.v(x)


MAPPING = {
    "weight": concat(*(transpose(f"{name}.weight") for name in "qkv"), dim=1),
    "bias": concat("q.bias", "k.bias", "v.bias"),
}


def step(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    loss = model(x).square().mean()
    loss.backward()
    return {"loss": loss.detach(), **{f"grad:{name}": p.grad for name, p in model.named_parameters()}}


def models() -> tuple[Fused, Separate, Tensor]:
    torch.manual_seed(3)
    fused = Fused()
    return fused, Separate(fused), torch.randn(5, WIDTH)


@pytest.mark.parametrize("fused_is_target", [True, False])
def test_fused_and_transposed(server: str, fused_is_target: bool) -> None:
    def compared(spoil: bool) -> plumbline.Verdict:
        fused, separate, x = models()
        if spoil:  # One weight of the keys: what was mapped is compared as well.
            fused.forward = lambda x, f=fused.forward: f(x) * 1.001
        pair = (fused, separate) if fused_is_target else (separate, fused)
        return plumbline.compare(lambda: step(pair[0], x), lambda: step(pair[1], x), server=server, mapping=MAPPING)

    same = compared(False)
    assert same.verdict == "TYPE_I", same.explain()
    assert same.coverage.opaque == 0
    assert same.math_resolution < 1e-9
    assert not any("without counterpart" in note for note in same.notes), same.notes
    assert compared(True).cause == "MATHEMATICS"


def test_other_content_of_what_is_mapped(server: str) -> None:
    fused, separate, x = models()
    with torch.no_grad():
        separate.k.weight[1, 2] += 0.01
    verdict = plumbline.compare(lambda: step(separate, x), lambda: step(fused, x), server=server, mapping=MAPPING)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "LEAF_MISMATCH"), verdict.explain()
    assert verdict.suspect is not None and verdict.suspect.op == "leaf param:k.weight"


def test_same_names(server: str) -> None:
    def program(weight: nn.Parameter, product) -> dict[str, Tensor]:
        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = weight

            def forward(self, x: Tensor) -> Tensor:
                return product(x, self.w)

        return step(Layer(), torch.ones(3, 4))

    torch.manual_seed(4)
    w = torch.randn(4, 6)
    mapping = {"w": transpose("w")}

    def target() -> dict[str, Tensor]:
        return program(nn.Parameter(w.clone()), lambda x, w: x @ w)

    def reference() -> dict[str, Tensor]:
        return program(nn.Parameter(w.T.contiguous()), F.linear)

    assert plumbline.compare(target, reference, server=server, mapping=mapping).verdict == "TYPE_I"
    with pytest.raises(plumbline.PlumblineError, match=r"'w': target has shape \[4, 6\], reference \[6, 4\]"):
        plumbline.compare(target, reference, server=server)


def test_taps_alone(server: str) -> None:
    x = torch.randn(4, 6)
    verdict = plumbline.compare(
        lambda: {"y": (x * 3).T}, lambda: {"y": x + 2 * x}, server=server, mapping={"y": transpose("y")}
    )
    assert verdict.verdict == "TYPE_I", verdict.explain()
    parts = plumbline.compare(
        lambda: {"a": x[:1] * 2, "b": x[1:] * 2},
        lambda: {"ab": x * 2},
        server=server,
        mapping={"ab": concat("a", "b", sizes=(1, 3))},
    )
    assert parts.verdict == "TYPE_I" and set(parts.taps) >= {"a", "b"}, parts.explain()


def test_errors_name_what_is_wrong(server: str) -> None:
    x = torch.ones(4, 6)
    for mapping, words in (
        ({"z": transpose("y")}, "mapping of 'z': neither program has such a parameter or tap"),
        ({"y": concat("a", "b", sizes=(1, 2))}, r"mapping of 'y': expected 2 sizes that add up to 4, found \[1, 2\]"),
        ({"y": concat("a", "b", dim=2)}, r"mapping of 'y': dim 2 of shape \[4, 6\]"),
        ({"y": concat()}, "mapping of 'y': expected one part or more"),
        ({"y": 3}, r"expected a name, transpose\(...\) or concat\(...\), found 3"),
        ({"y": concat("a", "b")}, "mapping of 'y': expected in one of the two programs, found in both"),
    ):
        with pytest.raises(plumbline.PlumblineError, match=words):
            plumbline.compare(lambda: {"y": x * 2}, lambda: {"y": x * 2}, server=server, mapping=mapping)
    with pytest.raises(plumbline.PlumblineError, match=r"tap 'y': target has shape \[4, 6\], reference \[6, 4\]"):
        plumbline.compare(lambda: {"y": x * 2}, lambda: {"y": x.T * 2}, server=server)


class Sharded(nn.Module):
    """An MLP under tensor parallelism, both ranks in one process: the first product by columns, the second by rows."""

    def __init__(self, whole: nn.Sequential) -> None:
        super().__init__()
        parts = zip(whole[0].weight.chunk(2, 0), whole[0].bias.chunk(2), whole[2].weight.chunk(2, 1), strict=True)
        self.ranks = nn.ModuleList(nn.Module() for _ in range(2))
        for rank, (columns, bias, rows) in zip(self.ranks, parts, strict=True):
            rank.columns, rank.bias, rank.rows = (nn.Parameter(t.detach().clone()) for t in (columns, bias, rows))
        self.bias = nn.Parameter(whole[2].bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return sum(torch.tanh(F.linear(x, rank.columns, rank.bias)) @ rank.rows.T for rank in self.ranks) + self.bias


def test_shards_of_tensor_parallelism(server: str) -> None:
    mapping = {
        "0.weight": concat("ranks.0.columns", "ranks.1.columns"),
        "0.bias": concat("ranks.0.bias", "ranks.1.bias"),
        "2.weight": concat("ranks.0.rows", "ranks.1.rows", dim=1),
        "2.bias": "bias",
    }

    def compared(scale: float) -> plumbline.Verdict:
        torch.manual_seed(5)
        whole, x = nn.Sequential(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, 4)), torch.randn(6, WIDTH)
        sharded = Sharded(whole)
        plain = sharded.forward
        sharded.forward = lambda x: plain(x) * scale
        return plumbline.compare(lambda: step(sharded, x), lambda: step(whole, x), server=server, mapping=mapping)

    same = compared(1.0)
    assert same.verdict == "TYPE_I", same.explain()
    assert not any("without counterpart" in note for note in same.notes), same.notes
    assert compared(1 + 1e-6).cause == "MATHEMATICS"


class Chain(nn.Module):
    """Three blocks, each written out in another way by `otherwise`; block 1 of these computes otherwise, too."""

    class Block(nn.Module):
        def __init__(self, otherwise: bool, scale: float) -> None:
            super().__init__()
            self.fc = nn.Linear(WIDTH, WIDTH)
            self.otherwise, self.scale = otherwise, scale

        def forward(self, x: Tensor) -> Tensor:
            if not self.otherwise:
                return torch.softmax(self.fc(x), -1)
            y = torch.exp(torch.einsum("bi,oi->bo", x, self.fc.weight) + self.fc.bias)
            return y / y.sum(-1, keepdim=True) * self.scale

    def __init__(self, otherwise: bool = False, wrong: int = -1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(self.Block(otherwise, 1.001 if i == wrong else 1.0) for i in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


def test_the_first_module_that_is_not_explained(server: str) -> None:
    def compared(wrong: int) -> plumbline.Verdict:
        torch.manual_seed(6)
        target, reference, x = Chain(True, wrong), Chain(), torch.randn(5, WIDTH)
        target.load_state_dict(reference.state_dict())
        return plumbline.compare(
            lambda: step(target, x), lambda: step(reference, x), server=server, modules=["blocks.?"]
        )

    same = compared(-1)
    assert same.verdict == "TYPE_I" and {"out:blocks.0", "out:blocks.2"} <= set(same.taps), same.explain()
    for wrong in (0, 1):
        found = compared(wrong)
        assert found.verdict == "TYPE_II", found.explain()
        assert f"first module that is not explained is blocks.{wrong}." in found.sentence, found.explain()
