"""What the audit is able to see: formula mutants found and traced, and the smallest relative errors flagged."""

import mutant
import mutants_layers  # noqa: F401  Registers its mutants.
import mutants_training  # noqa: F401  And these theirs.
import resolution
import torch
from private_daemon import running

DEPTHS, DEPTH = (2, 12, 24), 12  # The one whose loss is published.
SMALL_DEPTH = 2


def measure(small: bool) -> tuple[str, dict]:
    torch.set_num_threads(1)  # Small tensors.
    with running() as daemon:
        rows = [
            row
            for kind in (("GPT",) if small else ("GPT", "Llama"))
            for autocast in (False, True)
            for depth in ((SMALL_DEPTH,) if small else DEPTHS)
            for row in resolution.rows_of(kind, depth, autocast, daemon.address)
        ]
        results = [mutant.judge(m, daemon.address) for m in (mutant.MUTANTS[::8] if small else mutant.MUTANTS)]
    if opaque := [row.name for row in rows if row.opaque]:
        raise RuntimeError(f"operations that the audit does not model, in {', '.join(opaque)}")
    published = ("GPT", SMALL_DEPTH if small else DEPTH, "loss")
    loss = {row.format: row for row in rows if (row.kind, row.depth, row.tap) == published}
    text = [
        "Smallest relative error flagged in the loss and in the gradient of the first block's first matrix",
        resolution.table(rows),
        "",
        mutant.table(results),
    ]
    return "\n".join(text), {
        "mutants": len(results),
        "flagged": sum(r.flagged for r in results),
        "located": sum(r.located for r in results),
        "fp32_loss_resolution": loss["fp32"].value,
        "bf16_loss_resolution": loss["bf16"].value,
        "fp32_paired_resolution": loss["fp32"].paired,
        "resolutions_hold": all(row.holds is not False for row in rows),
    }
