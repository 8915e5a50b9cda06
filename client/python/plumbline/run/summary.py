"""What an audited program is told at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .steps import Steps

FLUSH_S_MAX = 60.0

_MISSED = {
    "disconnected": "the daemon was away",
    "queue_full": "the daemon had not yet taken the steps before",
    "already_judged": "the run had been judged up to there before",
    "dispatch_mode": "a dispatch mode of the program's was active",
    "evaluation_mode": "the modules were called in evaluation mode",
    "no_module_called": "no module was called before the optimizer stepped",
    "capture_nested": "another step was being captured",
    "compiled_region": "code was compiled by a backend that computes out of sight",
}


def lines_of(steps: Steps) -> Iterator[str]:
    """Waits for the verdicts that are still to come. Of ranks that are judged together the first one speaks."""
    if any(audit.judged_together and audit.identity.rank > 0 for audit in steps.audits):
        return
    answered = steps.flush(FLUSH_S_MAX)
    verdicts, errors = steps.verdicts(), list(steps.errors().items())
    counts = Counter(verdict.verdict for verdict in verdicts)
    if verdicts:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        yield f"{len(verdicts)} of {steps.steps} steps audited: {kinds}"
    else:
        yield f"nothing was audited: {_why_nothing(steps, bool(errors))}"
    for kind in sorted(counts):
        if kind != "TYPE_I":
            first = next(verdict for verdict in verdicts if verdict.verdict == kind)
            yield f"the first {kind} is {first.id}: {first.sentence}"
            if first.suspect is not None:
                yield f"suspect: {first.suspect}"
    if errors:
        yield f"{_steps(len(errors))} with an error, the first of them step {errors[0][0]}: {errors[0][1]}"
    for reason, count in steps.missed.most_common():
        yield f"{_steps(count)} not audited: {_MISSED.get(reason, reason)}"
    if not answered:
        yield "not all verdicts were there after a minute; `plumb verdicts` lists them"
    if steps.elsewhere and verdicts:
        yield f"{_steps(steps.elsewhere)} in other threads, which are not audited"


def _why_nothing(steps: Steps, failed: bool) -> str:
    if steps.refusal is not None:
        return str(steps.refusal)
    if not steps.steps and not steps.elsewhere:
        return "no optimizer of PyTorch stepped in this process (compiled steps and further processes are not followed)"
    if not steps.steps:
        return f"the optimizers stepped in threads that are not audited ({_steps(steps.elsewhere)})"
    if failed:
        return f"no step of {steps.steps} could be judged"
    return f"{_steps(steps.steps)}, none of which was sampled or could be captured"


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"
