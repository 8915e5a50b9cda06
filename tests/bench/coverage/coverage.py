"""Whether a training step of every family of models is audited whole, and explained: forward, loss, backward and
optimizer, live through client and daemon, in fp32 and under bf16 autocast.

  value   the step against bare values (loss and gradients) of the same step in fp64
  order   the step against itself in another order: the batch in halves, optimizers without lists, convolutions by
          another library where rows depend on each other

A family passes in a format when both verdicts are TYPE_I and nothing was opaque.
"""

import contextlib
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import language
import signals
import torch
from family import Batch, Family
from private_daemon import running
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import plumbline

FAMILIES = [*language.FAMILIES, *signals.FAMILIES]
FORMATS = ("fp32", "bf16")


class InDouble(TorchFunctionMode):
    """Programs that ask for fp32 by name get fp64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def wide(value):
            return torch.float64 if value is torch.float32 else value

        if func is Tensor.float:
            func = Tensor.double
        return func(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


@contextlib.contextmanager
def in_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


@dataclass
class Training:
    """A model on its way, with the optimizer's state."""

    family: Family
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Batch
    bf16: bool

    @classmethod
    def started(cls, family: Family, bf16: bool, seed: int) -> "Training":
        """After one step that nobody watched, so that the optimizer has its state."""
        torch.manual_seed(seed)
        model = family.model()
        draw = torch.Generator().manual_seed(seed)
        training = cls(family, model, family.optimizer(model.parameters(), True), family.batch(draw), bf16)
        training.step()
        training.optimizer.zero_grad()
        training.batch = family.batch(draw)
        return training

    def copy(self, foreach: bool = True, wide: bool = False) -> "Training":
        model = copy.deepcopy(self.model)
        batch = dict(self.batch)
        if wide:
            model.double()
            if hasattr(model, "set_experts_implementation"):
                model.set_experts_implementation("eager")  # Grouped products have no form in fp64.
            batch = {name: t.double() if t.is_floating_point() else t for name, t in batch.items()}
        optimizer = self.family.optimizer(model.parameters(), foreach)
        state = copy.deepcopy(self.optimizer.state_dict()["state"])
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        return Training(self.family, model, optimizer, batch, self.bf16 and not wide)

    def step(self, parts: int = 1) -> Tensor:
        total = torch.zeros(())
        for part in range(parts):
            batch = {name: tensor.chunk(parts)[part] for name, tensor in self.batch.items()}
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                loss = self.family.loss(self.model, batch)
            (loss / parts).backward()
            total = total + loss.detach() / parts
        self.optimizer.step()
        return total

    def exact_values(self) -> dict[str, Tensor]:
        """Loss and gradients of the step in fp64."""
        wide = self.copy(wide=True)
        with in_double():
            values = {"loss": wide.step()}
        gradients = {f"grad:{name}": p.grad for name, p in wide.model.named_parameters() if p.grad is not None}
        return values | gradients


CONVOLVED = ("Mamba", "ResNet", "U-Net")


def onednn_has_bf16() -> bool:
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


@dataclass(frozen=True)
class Outcome:
    family: Family
    format: str
    question: str  # "value" or "order"
    verdict: plumbline.Verdict | None
    error: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.verdict == "TYPE_I" and not self.opaque

    @property
    def vague(self) -> bool:
        """Nothing can be said of it under bf16 where convolutions add up in bf16: their envelope exceeds a tenth."""
        return self.format == "bf16" and self.family.name in CONVOLVED and not onednn_has_bf16() and self._unanswered

    @property
    def _unanswered(self) -> bool:
        return self.verdict is not None and self.verdict.cause == "UNANSWERED" and not self.opaque

    @property
    def opaque(self) -> list[str]:
        return list(self.verdict.coverage.opaque_names) if self.verdict else []

    def row(self) -> tuple[str, ...]:
        head = (self.family.name, self.format, self.question)
        if self.verdict is None:
            return (*head, "", "not judged", "", "", "", "", "")
        v = self.verdict
        taps = v.taps.values()
        loss = v.taps.get("loss")
        resolution = "math_resolution" if self.question == "order" else "exec_resolution"
        gradients = [tap for tap in taps if tap.name.startswith("grad:") or tap.name == "all gradients"]
        worst = max(gradients, key=lambda tap: _rank(getattr(tap, resolution)), default=None)
        return (
            *head,
            str(v.coverage.operations),
            f"{v.verdict} {v.grade}",
            loss.outcome if loss else "no tap",
            f"{getattr(loss, resolution):.1e}" if loss else "",
            worst.outcome if worst else "none",
            f"{getattr(worst, resolution):.1e}" if worst else "",
            " ".join(self.opaque) or "none",
        )


def _rank(value: float) -> float:
    return math.inf if math.isnan(value) else value


def audited(address: str, job: str, training: Training, run: str, reference: str | None = None, parts: int = 1,
            values: dict[str, Tensor] | None = None) -> plumbline.Verdict:  # fmt: skip
    audit = plumbline.watch(
        training.model, training.optimizer, address, job=job, run=run, every=1, reference=reference,
        keep_trace=run == "other-order",
    )  # fmt: skip
    try:
        with audit.step():
            training.step(parts)
            if values is not None:
                audit.reference(values)
        if not audit.flush(300):
            raise RuntimeError("no verdict within 300 s")
        if audit.errors() or not audit.verdicts():
            raise RuntimeError(str(audit.errors() or audit.missed()))
        return audit.verdicts()[-1]
    finally:
        audit.close()


def judged(address: str, family: Family, bf16: bool, seed: int) -> list[Outcome]:
    start = Training.started(family, bf16, seed)
    form = FORMATS[bf16]
    job = f"{family.name} {form}".replace(" ", "-")

    def value() -> plumbline.Verdict:
        return audited(address, f"{job}-value", start.copy(), "target", values=start.exact_values())

    def order() -> plumbline.Verdict:
        with contextlib.ExitStack() as stack:
            if not family.splits:
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            audited(address, job, start.copy(foreach=False), "other-order", parts=2 if family.splits else 1)
        return audited(address, job, start.copy(), "target", reference="other-order")

    outcomes = []
    for question, ask in (("value", value), ("order", order)):
        try:
            outcomes.append(Outcome(family, form, question, ask()))
        except Exception as error:  # A family that is not done is shown as such.
            outcomes.append(Outcome(family, form, question, None, f"{type(error).__name__}: {error}"))
    return outcomes


def measure(small: bool, seed: int | None) -> tuple[str, dict]:
    """`small`: each model in one of the two formats, in turn."""
    seed = 7 if seed is None else seed
    torch.set_num_threads(1)  # Small tensors.
    asked = [(f, bf16) for i, f in enumerate(FAMILIES) for bf16 in ([i % 2 == 1] if small else [False, True])]
    with running() as daemon:
        outcomes = [o for family, bf16 in asked for o in judged(daemon.address, family, bf16, seed)]
    opaque = {name for o in outcomes for name in o.opaque}

    def passed(form: str) -> int:
        of = [[o.passed for o in outcomes if o.family is f and o.format == form] for f in FAMILIES]
        return sum(bool(passes) and all(passes) for passes in of)

    figures = {
        "models": len(FAMILIES),
        "steps": sum(all(o.verdict is not None for o in outcomes if o.family is f) for f in FAMILIES),
        "ops_seen": sum(o.verdict.coverage.operations for o in outcomes if o.verdict),
        "ops_opaque": len(opaque),
        "fp32_type_i": passed("fp32"),
        "bf16_type_i": passed("bf16"),
        "passed": all(outcome.passed or outcome.vague for outcome in outcomes),
    }
    return f"{table(outcomes)}\n\n{failures(outcomes)}models and data drawn from --seed {seed}", figures


def failures(outcomes: list[Outcome]) -> str:
    lines = [
        f"{o.family.name}, {o.format}, against its {o.question}: {o.verdict.sentence if o.verdict else o.error}\n"
        for o in outcomes
        if not o.passed
    ]
    return "".join(lines) + "\n" if lines else ""


def table(outcomes: list[Outcome]) -> str:
    rows = [("model", "format", "against", "ops", "verdict", "loss", "resolution", "gradients", "resolution")]
    rows[0] += ("opaque",)
    rows += [outcome.row() for outcome in outcomes]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
