"""plumbline.define: operations with kernels of their own are audited against the mathematics that the user tells."""

from collections.abc import Callable, Iterator

import own_kernels as own
import pytest
import torch
from own_kernels import wrong
from torch import Tensor, nn

import plumbline
from plumbline.definition import definitions

ownlib = torch.ops.ownlib
Taps = dict[str, Tensor]


@pytest.fixture(autouse=True)
def no_definitions() -> Iterator[None]:
    definitions.clear()
    yield
    definitions.clear()


def define_rms_norm() -> None:
    plumbline.define("ownlib::rms_norm", own.rms_norm_formula, backward=own.rms_norm_backward_formula)


class Network(nn.Module):
    def __init__(self, norm: Callable[..., Tensor], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.inner, self.outer = nn.Linear(24, 16), nn.Linear(16, 8)
        self.weight = nn.Parameter(torch.randn(16) / 4)
        self.norm = norm
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.norm(self.inner(x), self.weight, 1e-6))


CALL = f"test_define.py:{Network.forward.__code__.co_firstlineno + 1}"
X, Y = torch.randn(12, 24, generator=torch.Generator().manual_seed(1)), torch.ones(12, 8)


def gradients(norm: Callable[..., Tensor], dtype: torch.dtype = torch.float32, scale: float = 1) -> Callable[[], Taps]:
    def program() -> Taps:
        model = Network(norm, dtype)
        loss = (model(X.to(dtype)) - Y.to(dtype)).square().mean() * scale
        loss.backward()
        return {"loss": loss} | {name: parameter.grad for name, parameter in model.named_parameters()}

    return program


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_right_kernel_and_wrong_ones(server: str, capture: str, dtype: torch.dtype) -> None:
    define_rms_norm()
    target, reference = gradients(ownlib.rms_norm, dtype), gradients(own.rms_norm_formula, dtype)
    right = plumbline.compare(target, reference, server, capture=capture)
    assert right.verdict == "TYPE_I", right.explain()
    assert right.coverage.opaque == 0
    resolutions = [tap.exec_resolution for tap in right.taps.values() if tap.exec_resolution == tap.exec_resolution]
    assert resolutions and max(resolutions) < (1e-4 if dtype is torch.float32 else 0.1), right.explain()
    assert right.math_resolution < 1e-9
    off = 1.0005 if dtype is torch.float32 else 1.5
    for operation, factor in (("rms_norm", off), ("forgets one", 1), ("rms_norm_backward", off)):
        with wrong(operation, factor):
            verdict = plumbline.compare(target, reference, server, capture=capture)
        assert (verdict.verdict, verdict.grade, verdict.cause) == ("TYPE_II", "PROVEN", "EXECUTION"), verdict.explain()
        name = "rms_norm_backward" if operation == "rms_norm_backward" else "rms_norm"
        assert verdict.suspect is not None and verdict.suspect.op == f"ownlib::{name}.default"
        assert verdict.suspect.source == CALL


def test_what_comes_after_it_is_compared_by_the_formula(server: str) -> None:
    define_rms_norm()
    target = gradients(ownlib.rms_norm)
    other = plumbline.compare(gradients(ownlib.rms_norm, scale=1 + 1e-6), target, server)
    assert (other.verdict, other.cause) == ("TYPE_II", "MATHEMATICS"), other.explain()
    other_eps = gradients(lambda x, weight, eps: own.rms_norm_formula(x, weight, 1e-5))
    other = plumbline.compare(target, other_eps, server)
    assert (other.verdict, other.grade, other.cause) == ("TYPE_II", "PROVEN", "MATHEMATICS"), other.explain()
    assert plumbline.compare(target, target, server).grade == "MATCH"
    assert plumbline.compare(target, None, server).verdict == "TYPE_I"


def test_a_formula_without_the_backward_leaves_that_unknown(server: str) -> None:
    plumbline.define("ownlib::rms_norm", own.rms_norm_formula)
    verdict = plumbline.compare(gradients(ownlib.rms_norm), None, server)
    assert list(verdict.coverage.opaque_names) == ["ownlib::rms_norm_backward.default"]


def test_a_backward_in_pytorch_needs_no_formula(server: str) -> None:
    plumbline.define("ownlib::softcap", own.softcap_formula)

    def program(cap: Callable[[Tensor, float], Tensor]) -> Callable[[], Taps]:
        def run() -> Taps:
            x = X.clone().requires_grad_()
            loss = (cap(x * 3, 2.0) * Y[:, :1]).square().sum()
            loss.backward()
            return {"loss": loss, "gradient": x.grad}

        return run

    target, reference = program(ownlib.softcap), program(own.softcap_formula)
    verdict = plumbline.compare(target, reference, server)
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    with wrong("softcap", 1 + 3 * 2**-23):  # A function that is 3 ULPs off, as fast libraries have it.
        assert plumbline.compare(target, reference, server).verdict == "TYPE_I"
    with wrong("softcap", 1 + 1e-5):
        verdict = plumbline.compare(target, reference, server)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


def test_arguments_that_are_written_and_lists(server: str) -> None:
    plumbline.define("ownlib::add_rms_norm_", own.add_rms_norm_formula)
    plumbline.define("ownlib::split_norm", own.split_norm_formula)
    weight = torch.linspace(-0.2, 0.3, 6)

    def in_place() -> Taps:
        rows = X * 1.5
        residual = rows[:, 6:12]  # A part of what it writes to.
        x = rows[:, :6] + 1
        ownlib.add_rms_norm_(x, residual, weight)
        return {"x": x * 2, "rows": rows * 2}

    def copied() -> Taps:
        rows = X * 1.5
        x, total = own.add_rms_norm_formula(rows[:, :6] + 1, rows[:, 6:12], weight, eps=1e-6)
        return {"x": x * 2, "rows": torch.cat([rows[:, :6], total, rows[:, 12:]], 1) * 2}

    def listed(norm: Callable[..., list[Tensor]]) -> Callable[[], Taps]:
        def run() -> Taps:
            columns, rows = norm([(X * 2).T, (X * 3)[:2]], None)
            (scaled,) = norm([X[:, :6] * 2], weight)
            return {"columns": columns * 2, "rows": rows + 1, "scaled": scaled + 1}

        return run

    for target, reference, operation in (
        (in_place, copied, "add_rms_norm_"),
        (listed(ownlib.split_norm), listed(own.split_norm_formula), "split_norm"),
    ):
        verdict = plumbline.compare(target, reference, server)
        assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
        with wrong(operation, 1.0001):
            verdict = plumbline.compare(target, reference, server)
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
        assert verdict.suspect is not None and verdict.suspect.op == f"ownlib::{operation}.default"


def test_what_a_formula_may_do(server: str) -> None:
    table = torch.linspace(0.5, 1.5, 24)

    def formula(x: Tensor, cap: float) -> Tensor:
        out = torch.empty_like(x)
        out.copy_(x)
        out.div_(torch.tensor(cap)).mul_(table).div_(table)
        assert out.shape == x.shape and out.is_contiguous()
        with torch.autocast("cpu"):
            pass
        return ownlib.split_norm([out], None)[0] * 0 + cap * out.tanh()

    plumbline.define("ownlib::split_norm", own.split_norm_formula)
    plumbline.define("ownlib::softcap", formula)
    for context in (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)):
        with context():
            verdict = plumbline.compare(lambda: {"y": ownlib.softcap(X * 2, 4.0)}, None, server)
        assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()


def test_a_region_of_compiled_code_holds_it(server: str) -> None:
    define_rms_norm()
    network = Network(ownlib.rms_norm)
    compiled = torch.compile(network, backend=plumbline.compile_backend("aot_eager"))

    def program(model: Callable[[Tensor], Tensor]) -> Callable[[], Taps]:
        def run() -> Taps:
            network.zero_grad()
            loss = (model(X) - Y).square().mean()
            loss.backward()
            return {"loss": loss, "gradient": network.weight.grad}

        return run

    program(compiled)()
    verdict = plumbline.compare(program(compiled), gradients(own.rms_norm_formula), server)
    torch._dynamo.reset()  # The first step of a process that compiled something is not captured.
    assert verdict.coverage.opaque == 0, verdict.explain()
    assert verdict.taps["loss"].outcome == "TYPE_I"


# The first step of a process that compiled something is not captured.
def trained(watch: Callable[..., plumbline.Audit] | None, steps: int = 3) -> tuple[list[Tensor], Tensor]:
    model = Network(ownlib.rms_norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    audit = None if watch is None else watch(model, optimizer)
    torch.manual_seed(11)
    for _ in range(steps):
        with audit.step() if audit is not None else torch.enable_grad():
            loss = (model(X + 0.1 * torch.randn(12, 24)) - Y).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if audit is not None:
            assert audit.flush()
    return [parameter.detach().clone() for parameter in model.parameters()], torch.get_rng_state()


def test_a_run_is_audited_and_not_a_bit_of_it_changes(server: str) -> None:
    define_rms_norm()
    audits = []

    def watched(model: nn.Module, optimizer: torch.optim.Optimizer) -> plumbline.Audit:
        audits.append(plumbline.watch(model, optimizer, server, job="own", every=1, on_type_ii="ignore"))
        return audits[-1]

    plain, state = trained(None)
    observed, state_after = trained(watched)
    assert all(torch.equal(*pair) for pair in zip(plain, observed, strict=True))
    assert torch.equal(state, state_after)
    with wrong("rms_norm", 1.001):
        trained(watched)
    right, faulty = audits
    assert {verdict.verdict for verdict in right.verdicts()} == {"TYPE_I"}, right.verdicts()[0].explain()
    assert not right.errors() and len(faulty.verdicts()) >= 2
    for verdict in faulty.verdicts():
        assert (verdict.verdict, verdict.grade, verdict.cause) == ("TYPE_II", "PROVEN", "EXECUTION"), verdict.explain()
        assert verdict.suspect is not None and verdict.suspect.source == CALL
    for audit in audits:
        audit.close()


def test_in_a_step_that_is_audited_in_part(server: str) -> None:
    define_rms_norm()
    audits = []

    def watched(model: nn.Module, optimizer: torch.optim.Optimizer) -> plumbline.Audit:
        scope = {"job": "part", "every": 1, "scope": ["outer"], "on_type_ii": "ignore"}
        audits.append(plumbline.watch(model, optimizer, server, **scope))
        return audits[-1]

    trained(watched)
    with wrong("rms_norm_backward", 1.001):
        trained(watched)
    right, faulty = ([verdict.verdict for verdict in audit.verdicts()] for audit in audits)
    assert set(right) == {"TYPE_I"} and set(faulty) == {"TYPE_II"}, audits[0].verdicts()[0].explain()
    for audit in audits:
        assert not audit.errors() and not audit.missed()
        audit.close()


def raises(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    raise ValueError("no such thing")


def calls_itself(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return ownlib.rms_norm(x, weight, eps) * 1


def writes(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.add_(weight)


# What shows when the operation runs: what is expected, what is found.
WRONG_FORMULAS: dict[str, tuple[Callable[..., object], str, str]] = {
    "another shape": (lambda x, weight, eps: x.sum(-1), "float32 [12, 16]", "float32 [12]"),
    "another type": (lambda x, weight, eps: x.double(), "float32 [12, 16]", "float64 [12, 16]"),
    "two results": (lambda x, weight, eps: (x, weight), "1 result", "float32 [12, 16], float32 [16]"),
    "no tensor": (lambda x, weight, eps: 3.0, "float32 [12, 16]", "float 3.0"),
    "raises": (raises, "a formula of tensors", "raised ValueError: no such thing"),
    "draws": (lambda x, weight, eps: x + torch.rand(16), "a formula without chance", "aten::rand.default"),
    "drops out": (lambda x, weight, eps: torch.dropout(x, 0.5, True), "a formula without chance", "draws"),
    "writes its argument": (writes, "leaves its arguments as they are", "aten::add_.Tensor"),
    "calls itself": (calls_itself, "a formula of other operations", "calls ownlib::rms_norm.default"),
    "reads a number": (lambda x, weight, eps: x * x.sum().item(), "a formula of tensors", "reads a number"),
    "decides by content": (lambda x, weight, eps: x if x.sum() > 0 else -x, "a formula of tensors", "reads a number"),
    "not modelled": (lambda x, weight, eps: torch.special.bessel_y0(x), "that are modelled", "bessel_y0.default"),
}


@pytest.mark.parametrize("case", WRONG_FORMULAS)
def test_a_wrong_formula_is_told_and_harms_nothing(server: str, case: str) -> None:
    formula, expected, found = WRONG_FORMULAS[case]
    plumbline.define("ownlib::rms_norm", formula, backward={"ownlib::rms_norm_backward": own.rms_norm_backward_formula})
    with pytest.raises(plumbline.PlumblineError) as raised:
        plumbline.compare(gradients(ownlib.rms_norm), None, server)
    audits = []

    def watched(model: nn.Module, optimizer: torch.optim.Optimizer) -> plumbline.Audit:
        audits.append(plumbline.watch(model, optimizer, server, job="wrong", every=1))
        return audits[-1]

    plain, state = trained(None, 2)
    observed, state_after = trained(watched, 2)
    assert all(torch.equal(*pair) for pair in zip(plain, observed, strict=True))
    assert torch.equal(state, state_after)
    errors, verdicts = audits[0].errors(), audits[0].verdicts()
    assert errors and len(errors) == len(verdicts)
    audits[0].close()
    for text in (str(raised.value), *map(str, errors.values())):
        assert "define('ownlib::rms_norm')" in text
        assert f"expected {expected}" in text or (expected in text and "expected" in text), text
        assert found in text.partition("found")[2], text
    assert list(verdicts[0].coverage.opaque_names) == ["ownlib::rms_norm.default"], verdicts[0].explain()


def of_two(x: Tensor, weight: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize(
    ("name", "formula", "backward", "message"),
    [
        ("ownlib::nothing", of_two, None, "the name of a registered operation .* found none"),
        ("nolib::nothing", of_two, None, "the name of a registered operation .* found none"),
        ("rms_norm", of_two, None, "a name|the name of an operation such as .* found 'rms_norm'"),
        (3, of_two, None, "the name of an operation such as .* found 3"),
        ("ownlib::rms_norm.wide", of_two, None, "overloads, ownlib::rms_norm.default, found 'ownlib::rms_norm.wide'"),
        ("aten::mm", of_two, None, "a library of your own, found one of PyTorch's"),
        ("ownlib::rms_norm", of_two, None, r"takes the operation's 3 arguments \(x, weight, eps\), found \(x:"),
        ("ownlib::rms_norm", lambda: None, None, r"3 arguments \(x, weight, eps\), found \(\)"),
        ("ownlib::add_rms_norm_", own.rms_norm_formula, None, r"4 arguments \(x, residual, weight, eps=\), found"),
        ("ownlib::rms_norm", "x * weight", None, "a formula that can be called, found 'x"),
        ("ownlib::softcap", own.softcap_formula, of_two, "'ownlib::softcap_backward'.* the name of a registered"),
        ("ownlib::rms_norm", own.rms_norm_formula, of_two, r"4 arguments \(gradient, x, weight, eps\), found"),
    ],
)
def test_what_cannot_be_a_definition(name: str, formula: object, backward: object, message: str) -> None:
    with pytest.raises(plumbline.PlumblineError, match=message):
        plumbline.define(name, formula, backward=backward)
    assert not definitions


def test_views_and_numbers_have_no_definition() -> None:
    library = torch.library.Library("ownlib", "FRAGMENT")
    library.define("viewed(Tensor(a) x) -> Tensor(a)")
    library.define("number(Tensor x) -> float")
    library.define("nothing_written(Tensor x) -> ()")
    for name, message in (
        ("viewed", "found a view"),
        ("number", "returns tensors, found float"),
        ("nothing_written", "returns or writes tensors"),
    ):
        with pytest.raises(plumbline.PlumblineError, match=message):
            plumbline.define(f"ownlib::{name}", lambda x: x)


def capped(factor: float, scale: float = 1) -> Callable[[], Taps]:
    """A program whose kernel, of which nothing is known, gives `factor` times what it should."""

    def run() -> Taps:
        x = (X * 3 * scale).requires_grad_()
        with wrong("softcap", factor):
            y = ownlib.softcap(x * 1.5, 2.0)
            loss = (y * Y[:, :1]).square().sum()
        loss.backward()
        return {"loss": loss, "gradient": x.grad}

    return run


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
@pytest.mark.parametrize("factor", [1 + 2**-20, 1.01, 2.0])
def test_unknown_operations_with_equal_inputs_and_other_outputs(server: str, factor: float, capture: str) -> None:
    verdict = plumbline.compare(capped(factor), capped(1), server, capture=capture)
    assert verdict.verdict != "TYPE_I", verdict.explain()
    assert "ownlib::softcap" in verdict.explain()
    assert plumbline.compare(capped(factor), capped(factor), server, capture=capture).grade == "MATCH"


def test_unknown_operations_whose_inputs_differ_by_rounding(server: str) -> None:
    # Inputs one rounding apart, outputs as far apart as the operation takes them: nothing is wrong, nothing is proven.
    def split() -> Taps:
        return {"y": ownlib.softcap((X[:, :12] @ X.T[:12] + X[:, 12:] @ X.T[12:]) * 0.1, 2.0) * 2}

    def whole() -> Taps:
        return {"y": ownlib.softcap((X @ X.T) * 0.1, 2.0) * 2}

    assert plumbline.compare(split, whole, server).verdict != "TYPE_II"


def test_one_of_many_unknown_operations_gives_something_else(server: str) -> None:
    def program(faulty: int) -> Callable[[], Taps]:
        def run() -> Taps:
            x = X
            for layer in range(5):
                with wrong("softcap", 1.001 if layer == faulty else 1):
                    x = ownlib.softcap(x * 1.1, 2.0)
            return {"y": x * 2}

        return run

    assert plumbline.compare(program(-1), program(-1), server).grade == "MATCH"
    for layer in range(5):
        verdict = plumbline.compare(program(layer), program(-1), server)
        assert verdict.verdict != "TYPE_I", (layer, verdict.explain())
