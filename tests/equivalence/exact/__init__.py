"""PyTorch in exact arithmetic: the part of its interface that generated programs use, over balls of 200 bits."""
