"""Guards: what the user declares of a tap, through a real daemon."""

import math

import pytest
import torch
from torch import Tensor, nn

import plumbline


def cosine_rate(form: str) -> dict[str, Tensor]:
    """The last step of a cosine decay, on the device: exactly 0 in real arithmetic, up to pi's own rounding."""
    angle = torch.tensor(math.pi)
    rate = {
        "cosine": lambda: 0.5 * (1 + torch.cos(angle)),
        "clamped": lambda: (0.5 * (1 + torch.cos(angle))).clamp(min=0),
        "square": lambda: torch.sin(0.5 * (math.pi - angle)) ** 2,
    }[form]()
    return {"lr": rate}


def test_rounding_alone_can_break_a_guard_and_its_remedies(server: str) -> None:
    """On the device whose cosine leaves [-1, 1]; a profile that promises the range keeps the rate positive."""

    def audited(form: str, profile: str = "ascend-910") -> plumbline.Verdict:
        guards = {"lr": (0, None)}
        return plumbline.compare(lambda: cosine_rate(form), None, server=server, guards=guards, profile=profile)

    verdict = audited("cosine")
    (hazard,) = verdict.hazards
    assert hazard.kind == "guard" and "can break the guard lr >= 0" in hazard.sentence
    assert hazard.place.op == "aten::cos.default" and hazard.place.source.startswith("test_guards.py:")
    assert "clamp lr at 0" in hazard.remedy and "sin" in hazard.remedy
    assert hazard.sentence in verdict.explain()
    for kept in (audited("clamped"), audited("square"), audited("cosine", "pytorch-cpu")):
        assert not kept.hazards, kept.explain()


def test_a_guard_of_a_training_run(server: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    audit = plumbline.watch(model, server=server, job="guards", every=1)
    audit.guard("weight", maximum=1e-3)
    for _ in range(2):
        with audit.step():
            model(torch.randn(3, 4)).sum().backward()
            audit.tap("weight", model.weight * 1)
    assert audit.flush()
    audit.close()
    verdicts = audit.verdicts()
    assert len(verdicts) == 2
    for verdict in verdicts:
        (hazard,) = verdict.hazards
        assert "program itself breaks the guard weight <= 0.001" in hazard.sentence and 0 < hazard.share <= 1


def test_wrong_guards(server: str, caplog: pytest.LogCaptureFixture) -> None:
    target = lambda: cosine_rate("cosine")  # noqa: E731
    for limits, words in (((None, None), "neither"), ((math.nan, None), "finite"), ((2, 1), "minimum <= maximum")):
        with pytest.raises(plumbline.PlumblineError, match=words):
            plumbline.compare(target, None, server=server, guards={"lr": limits})
    with pytest.raises(plumbline.PlumblineError, match="guard on 'rate', which is no tap of the step: lr"):
        plumbline.compare(target, None, server=server, guards={"rate": (0, None)})
    audit = plumbline.watch(nn.Linear(1, 1), server=server, job="wrong-guards", every=1)
    with pytest.raises(plumbline.PlumblineError, match="finite"):
        audit.guard("lr", minimum=math.inf)
    audit.guard("lr", minimum=0)
    with audit.step():
        torch.zeros(1)
    assert audit.missed() == 1 and "guard on 'lr'" in caplog.text
    audit.close()
