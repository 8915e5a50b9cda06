#!/usr/bin/env python3
"""Runs one operation with PyTorch alone and tells whether its result is one that rounding can explain.

    python repro.py [DEVICE]        DEVICE is "cpu" unless given.

Exit codes: 0 inside of the enclosure, 2 outside; 1 is an error. Written by `plumb reproduce`.
"""

import base64
import json
import math
import pathlib
import sys

import torch

# The operation, where its tensors lie among the bytes, and the bounds of its results.
CASE = r"""@CASE@"""
# All tensors' bytes, in base64; where it is empty, they are in the file of this name with the suffix ".bin".
DATA = "@DATA@"

DTYPES = {
    "DTYPE_FLOAT64": torch.float64,
    "DTYPE_FLOAT32": torch.float32,
    "DTYPE_FLOAT16": torch.float16,
    "DTYPE_BFLOAT16": torch.bfloat16,
    "DTYPE_INT64": torch.int64,
    "DTYPE_INT32": torch.int32,
    "DTYPE_INT16": torch.int16,
    "DTYPE_INT8": torch.int8,
    "DTYPE_UINT8": torch.uint8,
    "DTYPE_BOOL": torch.bool,
    "DTYPE_FLOAT8_E4M3FN": getattr(torch, "float8_e4m3fn", None),
    "DTYPE_FLOAT8_E5M2": getattr(torch, "float8_e5m2", None),
}


def content():
    if DATA:
        return base64.b64decode(DATA)
    beside = pathlib.Path(__file__).with_suffix(".bin")
    if not beside.exists():
        sys.exit(f"{beside} is missing: it holds the tensors")
    return beside.read_bytes()


def read(data, at, sizes, dtype):
    count = math.prod(sizes)
    if count == 0:
        return torch.empty(sizes, dtype=dtype)
    end = at + count * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(bytearray(data[at:end]), dtype=dtype).reshape(sizes)


def operand(entry, data, device):
    """The tensor, laid out in memory as the step had it where its elements do not overlap."""
    tensor = entry["tensor"]
    sizes, strides = [int(n) for n in tensor["sizes"]], [int(n) for n in tensor["strides"]]
    values = read(data, int(entry["at"]), sizes, DTYPES[tensor["dtype"]]).to(device)
    own = [1 if stride == 0 else size for size, stride in zip(sizes, strides)]  # noqa: B905
    reach = 1
    for stride, size in sorted(pair for pair in zip(strides, own) if pair[1] > 1):  # noqa: B905
        if stride < reach:
            return values
        reach = stride * size
    if values.numel() == 0:
        return values
    laid = torch.empty_strided(own, strides, dtype=values.dtype, device=device)
    laid.copy_(values[tuple(slice(0, size) for size in own)])
    return laid.expand(sizes)


def argument(given, operands):
    def tensor(entry):
        number = int(entry["value"])
        return operands[number - 1] if number else None

    if "tensor" in given:
        return tensor(given["tensor"])
    if "tensors" in given:
        return [tensor(entry) for entry in given["tensors"]["tensors"]]
    if "integer" in given:
        return int(given["integer"])
    if "real" in given:
        return float(given["real"])
    if "integers" in given:
        return [int(value) for value in given["integers"]["values"]]
    if "reals" in given:
        return [float(value) for value in given["reals"]["values"]]
    if "booleans" in given:
        return list(given["booleans"]["values"])
    if "boolean" in given:
        return given["boolean"]
    if "dtype" in given:
        return DTYPES[given["dtype"]]
    if "text" in given:
        text = given["text"]
        return getattr(torch, text[6:]) if text.startswith("torch.") else text
    return None


def flat(values):
    for value in values if isinstance(values, (list, tuple)) else [values]:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        elif isinstance(value, torch.Tensor):
            yield value


def run(case, operands, device):
    """Calls the operation. Its results in the order of case["results"]."""
    full, _, kind = case["op"]["name"].partition(" on ")
    namespace, _, name = full.partition("::")
    name, _, overload = name.partition(".")
    function = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    given = {entry["name"]: argument(entry, operands) for entry in case["op"]["arguments"]}
    args, kwargs = [], {}
    for described in function._schema.arguments:
        value = given.get(described.name, described.default_value)
        if kind == "uint64" and str(described.type) == "Tensor" and isinstance(value, list):
            value = value[0].view(torch.uint64)  # The state of a generator, told as whole numbers.
        if described.name == "device" and value is not None:
            value = device
        if described.kwarg_only:
            kwargs[described.name] = value
        else:
            args.append(value)
    returned = function(*args, **kwargs)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    fresh = []
    for output, described in zip(outputs, function._schema.returns):  # noqa: B905
        if described.alias_info is None:
            fresh += flat(output)
    written = {name: list(flat(value)) for name, value in given.items()}
    return [(written[entry["argument"]] if entry["argument"] else fresh).pop(0) for entry in case["results"]]


def compare(result, entry, data):
    """How many elements lie outside, the first of them in words, and of how many nothing is promised."""
    sizes = [int(n) for n in entry["tensor"]["sizes"]]
    if list(result.shape) != sizes:
        return max(1, result.numel()), f"its shape is {list(result.shape)}, not {sizes}", 0
    count, at = math.prod(sizes), int(entry["at"])
    low = read(data, at, [count], torch.float64)
    high = read(data, at + 8 * count, [count], torch.float64)
    value = result.detach().cpu().to(torch.float64).reshape(-1)
    unpromised = low.isnan()
    outside = ~((value >= low) & (value <= high)) & ~unpromised
    text = ""
    if outside.any():
        i = int(outside.nonzero()[0])
        text = f"element {i} is {value[i].item()!r}, legal is [{low[i].item()!r}, {high[i].item()!r}]"
    return int(outside.sum()), text, int(unpromised.sum())


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    case, data = json.loads(CASE), content()
    op = case["op"]
    print(f"{op['name']}, suspected in {case['verdict']}" + (f" at {op['source']}" if op["source"] else ""))
    print(f"  {case['sentence']}")
    if case["suspect"]:
        print(f"  {case['suspect']}")
    replayed = [entry["tensor"]["value"] for entry in case["operands"] if not entry["exact"]]
    if replayed:
        print(f"  not observed, but our own rounded replay of the step: operands {', '.join(replayed)}")
    operands = [operand(entry, data, device) for entry in case["operands"]]
    total = 0
    print(f"torch {torch.__version__} on {device}, by the profile {case['profile']}:")
    for number, (result, entry) in enumerate(zip(run(case, operands, device), case["results"])):  # noqa: B905
        outside, text, unpromised = compare(result, entry, data)
        total += outside
        line = f"OUTSIDE in {outside} of {result.numel()} elements: {text}" if outside else "inside"
        if unpromised:
            line += f" (nothing is promised of {unpromised} elements)"
        print(f"  {entry['argument'] or f'result {number}'}: {line}")
    return 2 if total else 0


if __name__ == "__main__":
    sys.exit(main())
