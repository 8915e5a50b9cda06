"""Audits a recipe of torchtune between its setup() and the end of its train(): one audited step is one step of the
optimizer, with all its micro-batches.

    recipe.setup(cfg)
    with audited(recipe, "unix:///run/plumbline.sock", every=100):
        recipe.train()
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torchtune.recipe_interfaces import FTRecipeInterface

from ..run.steps import Steps
from ..run.within import audited as within


def audited(recipe: FTRecipeInterface, server: str | None = None, **options: Any) -> AbstractContextManager[Steps]:
    """Watches what the recipe trains; `options` are those of watch(). The job is named after the recipe's class, unless
    they say otherwise. What the block is given has verdicts() and errors(), complete once it has ended."""
    optimizer = getattr(recipe, "_optimizer", None)
    return within([] if optimizer is None else [optimizer], server, **{"job": type(recipe).__name__, **options})
