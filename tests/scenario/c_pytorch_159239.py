"""pytorch 159239: eager code rounds to bf16 after each operation, compiled code once at the end: the compiled result is
the closer one to fp32."""

import torch
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("pytorch 159239", "compiled code is closer to fp32", size=(16, 64), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.bfloat16 if dtype == torch.float32 else dtype
    x, gate, bias = (normal(seed + i, size, dtype=dtype).to(short) for i in range(3))

    def program(inner: torch.dtype) -> dict[str, torch.Tensor]:
        a, b, c = x.to(inner), gate.to(inner), bias.to(inner)
        return {"out": (torch.sigmoid(b) * torch.tanh(a + c) + 0.5 * a).to(short)}

    return lambda: program(dtype), lambda: program(short)
