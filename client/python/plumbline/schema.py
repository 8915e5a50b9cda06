"""What an operator's schema says about it, worked out once per overload: what it reads, writes, returns and draws."""

from __future__ import annotations

from typing import Any

import torch

from .autocasting import CASTING_OPS

# torch dtype -> DType of trace.proto. Any other dtype is not modelled, and operations on it are opaque.
DTYPES: dict[torch.dtype, int] = {
    torch.float64: 1,
    torch.float32: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.int64: 5,
    torch.int32: 6,
    torch.int16: 7,
    torch.int8: 8,
    torch.uint8: 9,
    torch.bool: 10,
    torch.float8_e4m3fn: 11,
    torch.float8_e5m2: 12,
}

# Kinds of operations.
SKIP, VIEW, EMPTY, RANDOM, SCALAR, OPERATION, COLLECTIVE = range(7)
# Kinds of arguments.
OTHER, TENSOR, TENSORS = range(3)

_EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}

# Operations whose only result is random bits. Not the ones that draw and compute (attention with dropout, ...).
_RANDOM = {
    "bernoulli", "bernoulli_", "binomial", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial",
    "normal", "normal_", "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "random", "random_", "randperm", "uniform", "uniform_", "_sample_dirichlet", "_standard_gamma",
}  # fmt: skip

# In-place operations that do not read what they overwrite.
_OVERWRITES = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}

# Arguments that an operation writes although its schema does not say so.
_UNANNOTATED_WRITES = {
    "native_batch_norm": ("running_mean", "running_var"),
    "cudnn_batch_norm": ("running_mean", "running_var"),
    "miopen_batch_norm": ("running_mean", "running_var"),
    "batch_norm_gather_stats": ("running_mean", "running_var"),
    "batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
}

# Operations whose derivative formula asks whether a dispatch mode is active, and then computes in another order: the
# gradient's bits would change by being watched. By name, the argument whose gradient it is. Found by a sweep of all
# operations (tests/client/test_sweep.py): prod for its own input, masked_fill for a fill value that is a tensor.
# cumprod did so in earlier releases; which of them can be followed all the same: hidden.py.
PERTURBING_OPS: dict[str, str] = {
    "aten::prod": "self",
    "aten::cumprod": "self",
    "aten::cumprod_": "self",
    "aten::masked_fill": "value",
    "aten::masked_fill_": "value",
}


# FSDP's operations that are others under another name, with the same arguments.
_OTHER_NAMES = {
    "fsdp::split_with_sizes_copy": ("split_with_sizes_copy", "out"),
    "fsdp::chunk_cat": ("_chunk_cat", "out"),
    "fsdp::chunk_cat_mixed_dtype": ("_chunk_cat", "out"),
}
FSDP_COPY_IN = "fsdp::all_gather_copy_in"  # Copies several tensors into one, and returns views on that.


def _another_name(func: Any) -> Any:
    name, overload = _OTHER_NAMES.get(func._schema.name, ("", ""))
    return getattr(getattr(torch.ops.aten, name), overload) if name else func


class _Unset:
    """Marks an argument that was left to its default."""

    __slots__ = ()  # So that the garbage collector need not follow it.


UNSET = _Unset()


class ArgumentInfo:
    """One argument of a schema."""

    __slots__ = ("default", "kind", "name", "out", "scalar", "type", "updated", "write")

    def __init__(self, argument: Any, unannotated: tuple[str, ...]) -> None:
        self.name: str = argument.name
        self.type = str(argument.type)
        bare = self.type.replace("Optional[", "").replace("]", "").replace("?", "").strip()
        if bare == "Tensor":
            self.kind = TENSOR
        elif bare.startswith("List[") and bare.endswith("Tensor"):
            self.kind = TENSORS
        else:
            self.kind = OTHER
        alias = argument.alias_info
        self.write = (alias is not None and alias.is_write) or self.name in unannotated
        self.out: bool = self.write and argument.kwarg_only
        self.updated = False  # Written in place, and perhaps read: it lies as it did.
        self.default = argument.default_value
        # Arguments in which a number stands for a value of the computation, not for a size, an index or a mode.
        self.scalar = self.kind == TENSOR or "number" in self.type or "Scalar" in self.type or self.type == "float"


class OperatorInfo:
    """One operator overload."""

    __slots__ = (
        "arguments", "base", "casts_inside", "composite", "constant", "devices", "fresh", "func", "kind",
        "last_result_decision", "lowered", "lowered_in_regions", "name", "observed", "overwrites", "perturbing",
        "positional", "positive_side", "result_decision", "returns_many", "wanted", "writes",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        func = _another_name(func)
        schema = func._schema
        self.func = func
        self.name = f"{schema.name}.{schema.overload_name or 'default'}"
        namespace, _, self.base = schema.name.partition("::")
        unannotated = _UNANNOTATED_WRITES.get(self.base, ()) if namespace == "aten" else ()
        self.arguments = [ArgumentInfo(argument, unannotated) for argument in schema.arguments]
        self.positional = sum(1 for argument in schema.arguments if not argument.kwarg_only)
        self.writes = [index for index, argument in enumerate(self.arguments) if argument.write]
        self.overwrites = namespace == "aten" and (self.base in _OVERWRITES or self.base in _RANDOM)
        for index in self.writes:
            argument = self.arguments[index]
            argument.updated = not argument.out and not (self.overwrites and index == 0)
        # Position of the argument whose gradient would be perturbed; -1: none.
        perturbing = PERTURBING_OPS.get(schema.name, "")
        self.perturbing = next((i for i, a in enumerate(self.arguments) if a.name == perturbing), -1)
        # Positions of the returns that the schema declares to be new tensors.
        self.fresh = [
            index
            for index, value in enumerate(schema.returns)
            if "Tensor" in str(value.type) and value.alias_info is None
        ]
        self.returns_many = len(schema.returns) > 1
        returns_tensors = any("Tensor" in str(value.type) for value in schema.returns)
        self.kind = self._kind(namespace, returns_tensors)
        # What it gives depends on no tensor and on no draw.
        self.constant = (
            self.kind == OPERATION
            and namespace == "aten"
            and not self.writes
            and all(argument.kind == OTHER for argument in self.arguments)
            and torch.Tag.nondeterministic_seeded not in func.tags
        )
        self.casts_inside = schema.name in CASTING_OPS
        self.composite = _is_composite(func) or schema.name == FSDP_COPY_IN
        # Devices that have a kernel of their own for what others make up elsewhere.
        self.devices = _devices_with_kernels(func) if self.composite else frozenset()
        # Set from the capture plan (see capture.Plan.info).
        self.observed = False  # Its results are sent.
        self.lowered = False
        self.lowered_in_regions = False
        self.wanted = False
        self.positive_side = False
        self.result_decision = False
        self.last_result_decision = False

    def composed(self, args: Any) -> bool:
        """Whether the operation is made up of others for these arguments. Where their device has a kernel of its own,
        that is what runs unwatched, and other operations would give other bits."""
        if not self.composite or not self.devices:
            return self.composite
        kinds = {value.device.type for value in args if isinstance(value, torch.Tensor)}
        return kinds.isdisjoint(self.devices)

    def given(self, args: Any, kwargs: Any) -> list[Any]:
        """The arguments of a call, in their order; UNSET where the default applies."""
        return [*args, *(kwargs.get(argument.name, UNSET) for argument in self.arguments[len(args) :])]

    def _kind(self, namespace: str, returns_tensors: bool) -> int:
        if namespace == "profiler" or torch.Tag.inplace_view in self.func.tags:
            return SKIP
        if namespace in ("c10d", "_c10d_functional"):
            passes_on = any(part in self.base for part in ("wait_tensor", "_wrap_tensor", "barrier", "check_for_nan"))
            return (
                SKIP if passes_on or not any("Tensor" in argument.type for argument in self.arguments) else COLLECTIVE
            )
        if namespace == "aten":
            if self.base == "_local_scalar_dense":
                return SCALAR
            if self.base in _EMPTY:
                return EMPTY
            if self.base in _RANDOM:
                return RANDOM
        if not self.writes and not self.fresh:
            return VIEW if returns_tensors else SKIP
        return OPERATION


def _devices_with_kernels(func: Any) -> frozenset[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return frozenset(kind for kind in ("cuda", "xpu", "mps") if has(func.name(), kind.upper()))


def _is_composite(func: Any) -> bool:
    """Whether the operation is defined by others alone; seen as itself only in inference mode."""
    if func._schema.name.startswith("aten::") is False:
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()
    return has(name, "CompositeImplicitAutograd") and not has(name, "CPU")
