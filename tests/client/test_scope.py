"""Partial steps: what is captured of them, that it changes no bit, and what is refused."""

import re
import statistics
import threading
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training import GPT

import plumbline
from plumbline.budget import checked_budget
from plumbline.pace import PLAIN_NEEDED, Instant, OwnThreads, PaceMeter
from plumbline.scope import Rotation
from plumbline.v1 import trace_pb2

OBSERVED = trace_pb2.Leaf.OBSERVED


class Shared(nn.Module):
    """Calls one layer twice, writes in place, and keeps a result aside for the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.aside = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(self.inner(x).relu_())
        g = self.gate(h)
        self.aside = g.mean()
        return self.out((h * 1).mul_(2) + g.sigmoid_())


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3)])
        self.out, self.reentrant = nn.Linear(8, 4), reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.out(x)


def steps(
    model: nn.Module, options: dict, address: str = "", count: int = 2, accumulate: int = 1, clip: float = 0, **watch
) -> tuple[list[Tensor], plumbline.watch.__class__ | None]:
    """Trains a model; returns its parameters and, if it was watched, the audit."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
    draw = torch.Generator().manual_seed(1)
    audit = plumbline.watch(model, optimizer, address, job="scope", every=1, **watch) if address else None
    assert audit is None or audit._transport.wait_open(30)

    def step() -> None:
        for _ in range(accumulate):
            x, y = torch.randn(6, 8, generator=draw), torch.randint(0, 4, (6,), generator=draw)
            loss = F.cross_entropy(model(x), y) / accumulate
            (loss + getattr(model, "aside", 0)).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(count):
        if audit is None:
            step()
            continue
        with audit.step():
            step()
        assert audit.flush(30)
        assert audit.missed() == 0, list(audit._missed)
    return [parameter.detach().clone() for parameter in model.parameters()], audit


CASES: dict[str, tuple[Callable[[], nn.Module], object, dict, dict]] = {
    "twice": (Shared, ["inner"], {}, {}),
    "in place": (Shared, ["gate", "out"], {"foreach": True}, {"clip": 0.1}),
    "accumulated": (Shared, ["inner"], {}, {"accumulate": 3}),
    "reentrant": (lambda: Checkpointed(True), ["blocks.1"], {}, {}),
    "inside a reentrant one": (lambda: Checkpointed(True), ["blocks.1.2"], {}, {}),
    "recomputed": (lambda: Checkpointed(False), [re.compile(r"blocks\.[02]\.0")], {}, {}),
    "rotating": (lambda: Checkpointed(False), "rotate", {"fused": True}, {"count": 12}),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_are_the_same(daemon, name: str) -> None:
    make, scope, options, extra = CASES[name]
    torch.manual_seed(0)
    plain, _ = steps(make(), options, **extra)
    torch.manual_seed(0)
    watched, audit = steps(make(), options, daemon.address, scope=scope, **extra)
    audit.close()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert not daemon.violations


def test_only_the_scope_is_in_the_trace(daemon) -> None:
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 48, (2, 9))
    with plumbline.watch(model, optimizer, daemon.address, job="scope", every=1, scope=["blocks.1.up"]) as audit:
        with audit.step():
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        assert audit.flush(30)
    (frames,) = daemon.steps
    modules = {frame.op.module for frame in frames if frame.HasField("op")}
    assert modules == {"", "blocks.1.up"}
    taps = {frame.tap.name for frame in frames if frame.HasField("tap")}
    named = {name for name in taps if name.startswith(("grad:", "update:", "state:"))}
    assert {"loss", "out:blocks.1.up#0", "gradin:blocks.1.up#0", "grad:blocks.1.up.weight"} <= taps
    assert {"update:blocks.1.up.weight", "state:blocks.1.up.bias.exp_avg"} <= taps
    assert all("blocks.1.up." in name for name in named), sorted(named)
    leaves = [frame.leaf for frame in frames if frame.HasField("leaf")]
    assert {leaf.name for leaf in leaves if leaf.name.startswith("param:")} == {
        "param:blocks.1.up.weight",
        "param:blocks.1.up.bias",
    }
    observed = {leaf.name for leaf in leaves if leaf.role == OBSERVED}
    assert {"observed:blocks.1.up#0:in0", "observed:blocks.1.up:gradient0#0"} <= observed
    scope = frames[0].step_begin.scope
    assert scope.partial and set(scope.modules) == {"", "blocks.1.up"}
    assert scope.modules_total == len(scope.modules) + len(scope.left_out)
    assert scope.parameters_total == sum(parameter.numel() for parameter in model.parameters())


def _known(name: str) -> str:
    """Numbers that the optimizer makes out of nothing are observed in a partial step, data in a whole one."""
    return "" if name.startswith("observed:step") else name


def test_numbers_by_position_stay_with_their_tensors(daemon) -> None:
    """Adafactor by lists multiplies each update by a number of its own."""
    torch.manual_seed(0)
    model = Shared()
    optimizer = torch.optim.Adafactor(model.parameters(), foreach=True)
    with plumbline.watch(model, optimizer, daemon.address, job="scope", every=1, scope=["out"]) as audit:
        assert audit._transport.wait_open(30)
        with audit.step():
            F.cross_entropy(model(torch.randn(6, 8)), torch.randint(0, 4, (6,))).backward()
            optimizer.step()
        assert audit.flush(30) and audit.missed() == 0
    by_numbers = [
        {argument.name: argument for argument in frame.op.arguments}
        for frame in daemon.steps[0]
        if frame.op.name == "aten::_foreach_mul_.ScalarList"
    ]
    assert by_numbers
    for call in by_numbers:
        assert len(call["self"].tensors.tensors) == len(call["scalars"].reals.values) == 1


def test_everything_is_the_whole_step(daemon) -> None:
    for number, scope in enumerate((None, "*")):
        torch.manual_seed(0)
        steps(Shared(), {}, daemon.address, count=1, scope=scope, first_step=number)[1].close()
    whole, part = (
        [(f.op.name, f.op.module, f.op.phase, f.tap.name, f.leaf.count, _known(f.leaf.name)) for f in frames]
        for frames in daemon.steps
    )
    assert sorted(whole) == sorted(part)


def test_a_write_out_of_view_is_seen(daemon) -> None:
    """What an audited layer gave is changed behind it, before its gradient needs it: no stale value is claimed."""

    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            self.rest = nn.Sequential(nn.Linear(8, 4))
            self.rest.register_forward_pre_hook(self.halve)

        @staticmethod
        def halve(_: nn.Module, args: tuple[Tensor]) -> None:
            args[0].data.mul_(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.rest(self.block(x))

    torch.manual_seed(0)
    _, audit = steps(Changed(), {}, daemon.address, count=1, scope=["block"])
    audit.close()
    leaves = [frame.leaf for frame in daemon.steps[0] if frame.HasField("leaf")]
    observed = {leaf.name for leaf in leaves if leaf.role == OBSERVED}
    # The gradient, and the output of tanh as it was by then.
    assert {"observed:rest:gradient0#0", "observed:step:backward#0"} <= observed


def test_modules_that_never_run_are_not_claimed(daemon, caplog) -> None:
    model = Shared()
    model.idle = nn.Linear(3, 3)
    _, audit = steps(model, {}, daemon.address, count=1, scope=["idle", "out"])
    audit.close()
    scope = daemon.steps[0][0].step_begin.scope
    assert set(scope.modules) == {"", "out"} and "idle" in scope.left_out


def test_rotation_comes_to_every_module() -> None:
    model = GPT(tied=True)
    callable_ = {name for name, m in model.named_modules() if not isinstance(m, nn.ModuleList)}
    for share in (1e-9, 0.1, 0.4, 1.0):
        rotation, seen, turns = Rotation([model], share), set(), 0
        while seen != callable_ and turns < 100:
            part = rotation.choose()
            assert "" in part.chosen and 0 < part.share <= 1
            assert ("tokens" in part.chosen) == ("head" in part.chosen)  # They share a parameter.
            seen |= part.chosen
            rotation.audited()
            turns += 1
        assert seen == callable_ and turns <= min(len(callable_), 1 / share + 2)
    again = Rotation([model], 0.1)
    assert again.choose().chosen == again.choose().chosen  # What was not captured is chosen again.


def test_rotation_of_one_module(daemon) -> None:
    _, audit = steps(nn.Linear(8, 4), {}, daemon.address, scope="rotate")
    audit.close()
    assert [list(frames[0].step_begin.scope.modules) for frames in daemon.steps] == [[""], [""]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scope": ["blocks.9"]}, "scope: 'blocks.9' matches no module; paths are as in named_modules(), such as"),
        ({"scope": [re.compile("attn$")]}, "scope: 'attn$' matches no module"),
        ({"scope": []}, "scope: expected 'rotate' or at least one pattern"),
        ({"scope": [3]}, "scope: expected 'rotate' or patterns of module paths, found 3"),
        ({"scope": "rotate", "reference": "a"}, 'scope: expected patterns beside reference, found "rotate"'),
        ({"scope": "out", "golden": "a"}, "scope: expected none beside golden"),
        ({"budget": 0}, "budget: expected a share of step time in (0, 1) such as 0.02, found 0"),
        ({"budget": 1.0}, "found 1.0"),
        ({"budget": float("nan")}, "found nan"),
        ({"budget": "fast"}, "budget: expected a rate above 0 such as \"50MB/s\", found 'fast'"),
        ({"budget": "1.2.3MB/s"}, "budget: expected a rate"),
        ({"budget": (0.1, "0B/s")}, "budget: expected a rate above 0"),
    ],
)
def test_bad_input(options: dict, message: str) -> None:
    with pytest.raises(plumbline.PlumblineError, match=re.escape(message)):
        plumbline.watch(Shared(), None, "unix:/nowhere", job="scope", **options)


def test_another_mode_in_the_step_ends_the_capture(daemon) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Plain(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model = Shared()
    with plumbline.watch(model, None, daemon.address, job="scope", every=1, scope=["out"]) as audit:
        with audit.step(), Plain():
            model(torch.randn(2, 8)).sum().backward()
        assert list(audit._missed) == ["dispatch_mode"]
        assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_an_exception_out_of_view_leaves_no_mode(daemon) -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no")

    model = nn.Sequential(nn.Linear(8, 8), Failing())
    with plumbline.watch(model, None, daemon.address, job="scope", every=1, scope=["0"]) as audit:
        with pytest.raises(ValueError), audit.step():
            model(torch.randn(2, 8))
        assert list(audit._missed) == ["exception"]
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_budget_as_it_is_written() -> None:
    both = checked_budget((0.02, "50 MB/s"))
    assert both.step_share == 0.02 and both.bytes_per_second == 5e7
    assert checked_budget(None) is None


def test_pace_of_a_synthetic_training() -> None:
    """Steps of 1 s, 60 s between the ninth and the tenth; the fourth is sampled, takes 3.5 s, and slows the two behind
    it to 1.25 s, after which the training rests for 30 s; the thirteenth takes 60 s. The machine slows down meanwhile,
    by a hundredth of a second each step. Watching costs a thousandth of each."""
    meter, now, found = PaceMeter(), 0.0, []
    for number in range(20):
        meter.begins(Instant(now), idle=not 4 <= number <= 5)
        if number == 3:
            meter.sampled(number, 0.25)
            meter.captured(1000)
        known = meter.take()
        if known is not None:
            found.append((number, known, meter.since))
        meter.entered(now + 0.001)
        now += 3.5 if number == 3 else 1.25 if number in (4, 5) else 60.0 if number == 12 else 1.0
        now += 0.01 * number
        meter.ends(Instant(now))
        now += 60.0 if number == 8 else 30.0 if number == 5 else 0.0
    ((number, (sample, cost, step_seconds), since),) = found
    assert number == 6 + PLAIN_NEEDED and since == number - 3 and step_seconds == pytest.approx(1.06, abs=0.03)
    plain = statistics.median(1 + 0.01 * before_or_after for before_or_after in (0, 1, 2, 6, 7, 8, 9, 10))
    assert cost == pytest.approx(3.53 + 1.29 + 1.30 - 3 * plain + 10 * 0.001)
    assert sample.bytes == 1000 and sample.slice == 0.25 and meter.steps == 20


def test_pace_where_nothing_is_ever_answered_in_time() -> None:
    meter, costs = PaceMeter(), []
    for number in range(200):
        meter.begins(Instant(float(number)), idle=number < 10)
        if number >= 10 and number % 10 == 0:
            meter.sampled(number, 1.0)
        known = meter.take()
        if known is not None:
            costs.append(known[1])
        meter.entered(float(number))
        meter.ends(Instant(number + 0.5))
    assert len(costs) == 18 and max(costs) < 1e-9


def test_pace_charges_no_less_than_processors_ran() -> None:
    """Every tenth step is sampled. What else the machine does hides its cost in every other of them, and doubles it in
    the rest: sums are right, and no smaller than what the threads ran."""
    for seen, ran, charged in ((0.4, 0.1, 0.4), (0.0, 0.1, 0.1 + 0.05)):
        own, total = OwnThreads(), 0.0
        meter = PaceMeter(own)
        for number in range(400):
            now = Instant(float(number), 0.5 * number)
            meter.begins(now, idle=True)
            if number % 10 == 0:
                meter.sampled(number, 1.0)
            known = meter.take()
            if known is not None:
                total += known[1]
            extra = (0.0, 0.0)
            if number % 10 == 0:
                extra = (0.0 if number % 20 else 2 * seen, ran)
                own.seconds += 0.05
            meter.entered(now.seconds)
            meter.ends(Instant(now.seconds + 0.4 + extra[0], now.processor + 0.3 + extra[1]))
        assert total / 39 == pytest.approx(charged, rel=0.06)


def test_own_threads_are_counted_once() -> None:
    own = OwnThreads()

    def work() -> None:
        for _ in range(3):
            sum(range(100_000))
            own.count()
        spent.append(time.thread_time())

    spent: list[float] = []
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert sum(spent) / 2 < own.seconds <= sum(spent)
