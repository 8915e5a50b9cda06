"""Trains one small GPT four times and lets Plumbline say which runs computed what the first one did.

  one-batch                 the whole batch at once: the reference
  accumulation-bug          four micro-batches, the mean of their means: wrong when sequences differ in length
  accumulation-fixed        four micro-batches, each token weighing the same: right, but rounded differently
  accumulation-fixed-value  the same, judged against nothing but the reference's loss values

The three lines that a training script needs are marked with (1), (2), (3).
"""

import argparse
import inspect
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from gpt import GPT
from torch import Tensor

import plumbline  # (1)

TEXT = Path(__file__).resolve().parents[2] / "tests" / "data" / "alice.txt"
CONTEXT = 64  # bytes
ROWS = 8  # sequences in a batch
MICRO_BATCHES = 4
IGNORE = -100  # target of a padded position


def batches(steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields inputs and targets, (ROWS, CONTEXT) each: sequences of uneven length, padded on the right."""
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    choose = random.Random(seed)
    for _ in range(steps):
        inputs = torch.zeros(ROWS, CONTEXT, dtype=torch.long)
        targets = torch.full((ROWS, CONTEXT), IGNORE, dtype=torch.long)
        for row in range(ROWS):
            length = choose.randint(CONTEXT // 8, CONTEXT)
            start = choose.randrange(len(text) - length - 1)
            inputs[row, :length] = text[start : start + length]
            targets[row, :length] = text[start + 1 : start + 1 + length]
        yield inputs, targets


# Each of the three does forward and backward of one batch and returns the loss.


def one_batch(model: GPT, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = model(inputs).flatten(0, 1)
    loss = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE)
    loss.backward()
    return loss.detach()


def mean_of_means(model: GPT, inputs: Tensor, targets: Tensor) -> Tensor:
    """The bug: a token of a short micro-batch weighs more than a token of a long one."""
    total = torch.zeros(())
    for x, y in zip(inputs.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES), strict=True):
        logits = model(x).flatten(0, 1)
        loss = F.cross_entropy(logits, y.flatten(), ignore_index=IGNORE) / MICRO_BATCHES
        loss.backward()
        total += loss.detach()
    return total


def sum_over_tokens(model: GPT, inputs: Tensor, targets: Tensor) -> Tensor:
    """The fix: divide by the number of tokens in the whole batch."""
    total, tokens = torch.zeros(()), (targets != IGNORE).sum()
    for x, y in zip(inputs.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES), strict=True):
        logits = model(x).flatten(0, 1)
        loss = F.cross_entropy(logits, y.flatten(), ignore_index=IGNORE, reduction="sum") / tokens
        loss.backward()
        total += loss.detach()
    return total


Step = Callable[[GPT, Tensor, Tensor], Tensor]


def train(
    options: argparse.Namespace,
    job: str,
    forward_backward: Step,
    values: list[Tensor] | None = None,
    run: str = "quickstart",
    reference: str | None = None,
) -> tuple[list[Tensor], list]:
    """Trains from the same weights on the same data; returns the losses by step and the verdicts."""
    torch.manual_seed(options.seed)
    model = GPT(context=CONTEXT, width=options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    audit = plumbline.watch(  # (2)
        model,
        optimizer,
        options.server,
        job=job,
        run=run,
        every=options.every,
        reference=reference,
        on_type_ii="ignore",
    )
    audit.on_verdict(lambda v: print(f"  {job}: step {v.step:3d}  {v.verdict} ({v.grade})", flush=True))
    losses = []
    for step, (inputs, targets) in enumerate(batches(options.steps, options.seed)):
        with audit.step():  # (3)
            loss = forward_backward(model, inputs, targets)
            if values is not None:
                audit.reference({"loss": values[step]})
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss)
        if step % options.every == 0:
            print(f"  {job}: step {step:3d}  loss {loss.item():.6f}", flush=True)
    if not audit.flush(600):
        raise SystemExit(f"{job}: the daemon did not answer within 600 s")
    for step, error in audit.errors().items():
        print(f"  {job}: step {step}: {error}", file=sys.stderr)
    audit.close()
    return losses, audit.verdicts()


def worst(verdicts: list) -> "plumbline.Verdict":
    rank = {"TYPE_I": 0, "INCONCLUSIVE": 1, "TYPE_II": 2}
    return max(verdicts, key=lambda v: (rank[v.verdict], -1 if math.isnan(v.surprise) else v.surprise))


def largest(values: list[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return max(known) if known else None


def summary(job: str, verdicts: list) -> dict:
    """One JSON line: the job's worst verdict, and the coarsest resolutions of all its steps."""
    v = worst(verdicts)
    operations = sum(each.coverage.operations for each in verdicts)
    return {
        "job": job,
        "verdict": v.verdict,
        "grade": v.grade,
        "cause": v.cause,
        "surprise": None if math.isnan(v.surprise) else v.surprise if math.isfinite(v.surprise) else "inf",
        "suspect": f"{v.suspect.source} {v.suspect.op}" if v.suspect else None,
        "math_resolution": largest([each.math_resolution for each in verdicts]),
        "exec_resolution": largest([each.exec_resolution for each in verdicts]),
        "coverage": sum(each.coverage.audited for each in verdicts) / operations if operations else 0.0,
        "opaque": sum(each.coverage.opaque for each in verdicts),
        "steps": len(verdicts),
        "type_i_steps": sum(each.verdict == "TYPE_I" for each in verdicts),
        "sentence": v.sentence,
    }


def points_at(suspect: "plumbline.Place | None", function: Step) -> bool:
    """Whether the suspected source line lies in the function."""
    if suspect is None:
        return False
    name, _, line = suspect.source.rpartition(":")
    lines, first = inspect.getsourcelines(function)
    return Path(name).name == Path(__file__).name and first <= int(line) < first + len(lines)


def unexpected(jobs: dict[str, list], steps: int) -> list[str]:
    """What is not as it must be, in words; `steps` is how many steps of each job were sampled at least."""
    wrong = [f"{job}: {len(v)} verdicts, expected at least {steps}" for job, v in jobs.items() if len(v) < steps]
    if wrong:
        return wrong
    for job, verdicts in jobs.items():
        for v in verdicts:
            if v.coverage.opaque:
                wrong.append(
                    f"{job} step {v.step}: {v.coverage.opaque} operations not audited: {v.coverage.opaque_names}"
                )
            if job == "accumulation-bug":
                if v.verdict != "TYPE_II":
                    wrong.append(f"{job} step {v.step}: {v.verdict}, expected TYPE_II: {v.sentence}")
                elif not points_at(v.suspect, mean_of_means):
                    wrong.append(f"{job} step {v.step}: the suspect is {v.suspect}, not the normalisation")
            elif v.verdict != "TYPE_I":
                wrong.append(f"{job} step {v.step}: {v.verdict}, expected TYPE_I: {v.sentence}")
    for job, limit in (("accumulation-fixed", 1e-9), ("accumulation-fixed-value", 1e-2)):
        coarsest = largest([v.taps["loss"].math_resolution for v in jobs[job]])
        if coarsest is None or coarsest >= limit:
            wrong.append(f"{job}: resolution {coarsest} on the loss, expected below {limit:g}")
    return wrong


def table(summaries: list[dict]) -> str:
    head = ("job", "verdict", "grade", "cause", "surprise", "resolution", "coverage", "suspect")
    rows = [head]
    for s in summaries:
        number = ["-" if s[key] is None else f"{float(s[key]):.2g}" for key in ("surprise", "math_resolution")]
        rows.append(
            (s["job"], f"{s['verdict']} {s['steps']} steps", s["grade"], s["cause"], *number, f"{s['coverage']:.0%}")
            + (s["suspect"] or "-",)
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the daemon, such as unix:///run/plumbline.sock")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--every", type=int, default=8, help="audit one step in so many")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1865)
    options = parser.parse_args()
    torch.set_num_threads(1)  # The other core is the daemon's.

    jobs = {}
    print("one-batch: the reference", flush=True)
    values, jobs["one-batch"] = train(options, "one-batch", one_batch, run="reference")
    paired = "one-batch/reference"
    print("accumulation-bug: four micro-batches, the mean of their means", flush=True)
    _, jobs["accumulation-bug"] = train(options, "accumulation-bug", mean_of_means, reference=paired)
    print("accumulation-fixed: four micro-batches, every token weighs the same", flush=True)
    _, jobs["accumulation-fixed"] = train(options, "accumulation-fixed", sum_over_tokens, reference=paired)
    print("accumulation-fixed-value: the same against the reference's loss values alone", flush=True)
    _, jobs["accumulation-fixed-value"] = train(options, "accumulation-fixed-value", sum_over_tokens, values)

    wrong = unexpected(jobs, (options.steps - 1) // options.every)
    summaries = [summary(job, verdicts) for job, verdicts in jobs.items() if verdicts]
    print(f"\n{table(summaries)}\n")
    for line in summaries:
        print(json.dumps(line))
    for line in wrong:
        print(f"unexpected: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
