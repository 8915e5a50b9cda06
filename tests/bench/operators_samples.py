"""Programs from PyTorch's own operator database: an operator on one of its sample inputs, forward and backward."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch._prims
from torch._subclasses.fake_tensor import FakeTensor
from torch.testing._internal.common_methods_invocations import op_db, python_ref_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

Program = Callable[[], dict[str, torch.Tensor]]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# What a sample may hold: the report is of operators, not of sizes.
ELEMENTS_MAX = 100_000
# Outputs hold memory that nobody wrote.
UNWRITTEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_"}


@dataclass(frozen=True)
class Sample:
    """One call of an operator, whose tensors are drawn and kept apart from the programs that run it."""

    operator: OpInfo
    dtype: torch.dtype
    number: int
    content: SampleInput

    @property
    def name(self) -> str:
        return self.operator.full_name

    @property
    def kind(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)

    def program(
        self,
        function: Callable[..., Any] | None = None,
        *,
        dtype: torch.dtype | None = None,
        mutation: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]] | None = None,
        change_arguments: Callable[[list, dict], None] | None = None,
    ) -> Program:
        """Runs once, on copies of its own. Taps: every output, and the gradient of every input that asks for one.

        function: in place of the operator's own. dtype: another precision, of the same numbers.
        """
        function = function or self.operator.op
        copy = _copier(self.dtype, dtype)
        first = pytree.tree_map(copy, self.content.input)
        args = list(pytree.tree_map(copy, list(self.content.args)))
        kwargs = dict(pytree.tree_map(copy, self.content.kwargs))
        if change_arguments is not None:
            change_arguments(args, kwargs)
        asked = [x for x in pytree.tree_leaves((first, args, kwargs)) if _is_tensor(x) and x.requires_grad]
        noise = torch.Generator("cpu").manual_seed(self.number)

        def weights(output: torch.Tensor) -> torch.Tensor:
            drawn = torch.randn(output.shape, generator=noise, dtype=torch.float64, device="cpu")
            return drawn.to(output.device, output.dtype)

        # The cotangents are data, so that they are made before anything is captured.
        cotangents = [weights(x) for x in _differentiable(self._outputs(function, first, args, kwargs, copy))]

        def run() -> dict[str, torch.Tensor]:
            outputs = _outputs(function(first, *args, **kwargs), self.content.output_process_fn_grad)
            taps = {f"out{i}": _as_real(x) for i, x in enumerate(outputs) if x.numel()}
            if mutation is not None:
                taps = mutation(taps)
            roots = _differentiable(list(taps.values()))
            if roots and asked:
                gradients = torch.autograd.grad(roots, asked, cotangents[: len(roots)], allow_unused=True)
                taps |= {f"grad{i}": _as_real(g) for i, g in enumerate(gradients) if g is not None}
            return {name: tap.detach() for name, tap in taps.items()}

        return run

    def _outputs(self, function: Any, first: Any, args: list, kwargs: dict, copy: Any) -> list[torch.Tensor]:
        first, args, kwargs = pytree.tree_map(_detached_copy, (first, args, kwargs))
        with torch.random.fork_rng():
            made = _outputs(function(first, *args, **kwargs), self.content.output_process_fn_grad)
        return [_as_real(x) for x in made]


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _detached_copy(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if _is_tensor(x) else x


def _copier(own: torch.dtype, wanted: torch.dtype | None) -> Callable[[Any], Any]:
    """Copies tensors, with their strides, and replaces the sample's element type where another one is wanted."""

    def copy(x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return wanted if wanted is not None and x == own else x
        if not _is_tensor(x):
            return x
        asks = x.requires_grad
        if wanted is not None and x.dtype.is_floating_point:
            x = x.detach().to(wanted)
        return x.detach().clone().requires_grad_(asks)

    return copy


def _outputs(result: Any, process: Callable[[Any], Any]) -> list[torch.Tensor]:
    """An operator's outputs, without the freedom that some have: the sign of a singular vector, for one."""
    return [x for x in pytree.tree_leaves(process(result)) if _is_tensor(x)]


def _as_real(x: torch.Tensor) -> torch.Tensor:
    x = x.resolve_conj() if x.is_complex() else x
    return torch.view_as_real(x) if x.is_complex() else x


def _differentiable(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x for x in outputs if x.requires_grad and x.dtype.is_floating_point]


def _comparable(sample: SampleInput) -> bool:
    tensors = [x for x in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if _is_tensor(x)]
    plain = all(x.layout == torch.strided and type(x) is torch.Tensor and not x.is_quantized for x in tensors)
    return plain and sum(x.numel() for x in tensors) <= ELEMENTS_MAX


def operators(names: set[str] | None = None) -> Iterator[OpInfo]:
    for operator in op_db:
        if operator.name not in UNWRITTEN and (names is None or operator.full_name in names):
            yield operator


def _have_content(values: Any) -> bool:
    tensors = [x for x in pytree.tree_leaves(values) if _is_tensor(x)]
    return not any(x.is_meta or isinstance(x, FakeTensor) for x in tensors)


@contextlib.contextmanager
def _prims_in_operations() -> Iterator[None]:
    """References are written in operations that take no derivatives; each has an implementation in ones that do, but
    for the one of conversions, which cuts the gradient. PyTorch works out shapes by references, too: as they are."""
    prims = {name: prim for name, prim in vars(torch._prims).items() if hasattr(prim, "impl_aten")}

    def replaced(prim: Any, other: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (other if _have_content((args, kwargs)) else prim)(*args, **kwargs)

    try:
        for name, prim in prims.items():
            setattr(torch._prims, name, replaced(prim, prim.impl_aten))
        torch._prims.convert_element_type = replaced(prims["convert_element_type"], torch.Tensor.to)
        yield
    finally:
        for name, prim in prims.items():
            setattr(torch._prims, name, prim)


def reference_of(operator: OpInfo) -> Callable[..., Any] | None:
    """PyTorch's own implementation of the operator in other operations, where it has one."""

    def run(reference: Callable[..., Any]) -> Callable[..., Any]:
        def in_operations(*args: Any, **kwargs: Any) -> Any:
            with _prims_in_operations():
                return reference(*args, **kwargs)

        return in_operations

    for reference in python_ref_db:
        if reference.torch_opinfo is operator:
            return run(reference.op)
    return None


def samples(operator: OpInfo, kind: str, count: int, seed: int) -> list[Sample]:
    """Some of an operator's sample inputs on the default device, drawn by the seed."""
    dtype, device = DTYPES[kind], torch.get_default_device().type
    if dtype not in operator.supported_dtypes(device):
        return []
    differentiable = operator.supports_autograd and dtype in operator.supported_backward_dtypes(device)
    draw = random.Random(f"{seed} {operator.full_name} {kind}")
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(draw.randrange(2**31))
        made = list(operator.sample_inputs(device, dtype, requires_grad=differentiable))
    numbered = [(i, sample) for i, sample in enumerate(made) if _comparable(sample)]
    chosen = sorted(draw.sample(numbered, min(count, len(numbered))), key=lambda pair: pair[0])
    return [Sample(operator, dtype, i, sample) for i, sample in chosen]
