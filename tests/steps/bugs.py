"""All of the bugs, by name (see run.py)."""

# Each registers its bugs.
import averages  # noqa: F401
import between_steps  # noqa: F401
import gradients  # noqa: F401
import losses  # noqa: F401
import optimizers_by_hand  # noqa: F401
from run import BUG, BUGS, FIXED, STEPS, Bug, judged

__all__ = ["BUG", "BUGS", "FIXED", "STEPS", "Bug", "judged"]
