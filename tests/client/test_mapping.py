"""Programs whose tensors are laid out otherwise: transposed, fused."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline
from plumbline import daemon
from plumbline.mapping import concat, transpose

WIDTH = 8


@pytest.fixture(scope="module")
def server():
    with daemon.private() as address:
        yield address


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
