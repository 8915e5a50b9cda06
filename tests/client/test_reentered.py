"""Steps that begin within others, in the same thread or beside it: one of them is audited, the others are counted as
missed, and the training computes what it would alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import plumbline

Step = Callable[[], contextlib.AbstractContextManager]


class Training:
    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-2)
        self.draw = torch.Generator().manual_seed(seed)

    def train(self, within: Callable[[], object] = lambda: None) -> None:
        x = torch.randn(16, 6, generator=self.draw)
        within()
        self.optimizer.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.net.parameters()]


@contextlib.contextmanager
def watched(training: Training, server: str, job: str) -> Iterator[plumbline.Audit]:
    with plumbline.watch(training.net, training.optimizer, server, job=job, every=1) as audit:
        yield audit
    assert not _get_current_dispatch_mode_stack()


def equal(a: Training, b: Training) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.weights(), b.weights(), strict=True))


def test_a_step_within_itself(server: str) -> None:
    """As where a library audits each of its micro-steps, and its user the whole."""
    plain, training = Training(), Training()
    for _ in range(3):
        plain.train(plain.train)
    with watched(training, server, "itself") as audit:
        for _ in range(3):
            with audit.step():
                training.train(lambda: within(audit, training))
            assert audit.flush()
        verdicts = audit.verdicts()
        assert not audit.errors()
        # Each counts, but only the outer ones were captured: they hold what ran within them.
        assert [verdict.step for verdict in verdicts] == [0, 2, 4]
        assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * 3, [v.explain() for v in verdicts]
    assert equal(plain, training)


def within(audit: plumbline.Audit, training: Training) -> None:
    missed = audit.missed()
    with audit.step():
        training.train()
    assert audit.missed() == missed + 1 and audit.missed_reason in ("capture_nested", "concurrent_capture")


def test_one_audit_s_step_within_another_s(server: str) -> None:
    """A teacher that trains within its pupil's step. The inner one cannot be captured as well, and says so."""
    plain = [Training(0), Training(1)]
    trained = [Training(0), Training(1)]
    for _ in range(2):
        plain[0].train(plain[1].train)
    with watched(trained[0], server, "outer") as outer, watched(trained[1], server, "inner") as inner:
        for _ in range(2):
            with outer.step():
                trained[0].train(lambda: within(inner, trained[1]))
        assert outer.flush() and inner.flush()
        assert [verdict.verdict for verdict in outer.verdicts()] == ["TYPE_I"] * 2
        assert not inner.verdicts() and inner.missed() == 2
    assert all(equal(*pair) for pair in zip(plain, trained, strict=True))


def test_a_step_in_another_thread_meanwhile(server: str) -> None:
    plain = [Training(0), Training(1)]
    trained = [Training(0), Training(1)]
    for one in plain:
        one.train()
    with watched(trained[0], server, "here") as here, watched(trained[1], server, "there") as there:

        def beside() -> None:
            thread = threading.Thread(target=within, args=(there, trained[1]))
            thread.start()
            thread.join()

        with here.step():
            trained[0].train(beside)
        assert here.flush() and there.flush()
        answered = [verdict.verdict for audit in (here, there) for verdict in audit.verdicts()]
        assert answered == ["TYPE_I"] and here.missed() + there.missed() == 1
    assert all(equal(*pair) for pair in zip(plain, trained, strict=True))


def test_a_step_that_raises_within_another(server: str) -> None:
    training = Training()
    with watched(training, server, "raises") as audit:
        with audit.step():
            training.train(lambda: raising(audit))
        with audit.step():
            training.train()
        assert audit.flush()
        assert [verdict.verdict for verdict in audit.verdicts()] == ["TYPE_I"] * 2


def raising(audit: plumbline.Audit) -> None:
    with pytest.raises(ZeroDivisionError), audit.step():
        assert audit.missed() == 1
        1 / 0  # noqa: B018


def test_a_comparison_within_a_step(server: str) -> None:
    plain, training = Training(), Training()
    plain.train()

    def compared() -> None:
        x = torch.linspace(0, 1, 8)
        with pytest.raises(plumbline.PlumblineError, match="captur"):
            plumbline.compare(lambda: {"y": x.exp()}, lambda: {"y": x.exp()}, server)

    with watched(training, server, "compares") as audit:
        with audit.step():
            training.train(compared)
        assert audit.flush()
        assert [verdict.verdict for verdict in audit.verdicts()] == ["TYPE_I"], audit.verdicts()[0].explain()
    assert equal(plain, training)
