"""Pairs that failed once, shrunk, with what each showed. They are labelled and judged again in every test run."""

from __future__ import annotations

from dataclasses import dataclass

from .spec import Applied, Block, Pair, Spec


@dataclass(frozen=True)
class Case:
    name: str
    shows: str
    expected: str
    pair: Pair


def _pair(
    seed: int,
    blocks: tuple[Block, ...],
    target: tuple[Applied, ...] = (),
    reference: tuple[Applied, ...] = (),
    batch: int = 2,
    time: int = 3,
    width: int = 4,
) -> Pair:
    training = (Block("whole"), Block("sgd", {"lr": 0.1}))
    full = blocks if len(blocks) > 1 and blocks[-1].kind not in _LOSSES else (*blocks, *training)
    return Pair(Spec(seed, batch, time, width, full, module=False), target, reference)


_LOSSES = ("mse", "huber", "l1", "selected", "masked_cross_entropy", "cross_entropy")
_EMBEDDING, _MSE = Block("embedding"), Block("mse")

CASES = (
    Case(
        "eps inside the root of Adam",
        "programs that differ, whose results are equal bit by bit, were accused",
        "TYPE_I",
        _pair(
            1211986717,
            (
                *(Block("pixels"), Block("residual", {"eps": 0.3}), _MSE, Block("whole")),
                Block("adam", {"lr": 0.01, "step": 10}),
            ),
            reference=(Applied("eps_inside", 4),),
        ),
    ),
    Case(
        "noise through torch.normal",
        "one draw with its deviation applied in two ways was taken for two draws",
        "TYPE_I",
        _pair(
            993872467,
            (_EMBEDDING, Block("noise", {"std": 0.03}), Block("gelu_tanh"), _MSE),
            target=(Applied("gelu_factored", 2), Applied("noise_by_parameters", 1)),
        ),
    ),
    Case(
        "a matrix product split",
        "a hash that wraps before an embedding left the step unanswered",
        "TYPE_I",
        _pair(148064436, (Block("hashed"), Block("linear"), _MSE), reference=(Applied("split_k", 1),), width=6),
    ),
    Case(
        "batch norm by the row",
        "a result that the capture did not observe left the step unanswered",
        "TYPE_I",
        _pair(
            628566487,
            (Block("features"), Block("batch_norm_eval", {"eps": 1e-05}), _MSE),
            target=(Applied("by_rows", 1),),
        ),
    ),
    Case(
        "a mask as a weight",
        "indexing by a mask is opaque, and equal bits did not end the question",
        "TYPE_I",
        _pair(
            1336795621,
            (_EMBEDDING, Block("inplace"), Block("selected")),
            reference=(Applied("selected_by_weight", 2),),
            batch=4,
            time=4,
        ),
    ),
    Case(
        "a rotary table kept in a buffer",
        "a leaf of one program is a computed node of the other, which was not seen",
        "TYPE_I",
        _pair(8, (_EMBEDDING, Block("rotary", {"base": 10000.0}), _MSE), target=(Applied("rotary_kept", 1),)),
    ),
    Case(
        "a loss scale of a thousand",
        "the rounding of 0.001, which only one program has, was taken for mathematics",
        "TYPE_I",
        _pair(
            9,
            (Block("features"), Block("linear"), _MSE),
            target=(Applied("loss_scaled_by_thousand", 3), Applied("transposed_product", 1)),
        ),
    ),
    Case(
        "codes rounded down",
        "floor in place of round was taken for another legal decision",
        "TYPE_II",
        _pair(
            5,
            (_EMBEDDING, Block("quantized", {"bits": 8}), _MSE),
            target=(Applied("quantized_floored", 1),),
        ),
    ),
    Case(
        "a limit of a uniform draw",
        "the map of a draw was not compared",
        "TYPE_II",
        _pair(
            6,
            (_EMBEDDING, Block("jitter", {"low": -0.1, "high": 0.1}), _MSE),
            target=(Applied("jitter_limit_off", 1, -0.0001739),),
        ),
    ),
    Case(
        "limits of a uniform draw that are one after rounding",
        "a change below what the kernel rounds limits to was accused",
        "TYPE_I",
        _pair(
            6,
            (_EMBEDDING, Block("jitter", {"low": -0.1, "high": 0.1}), _MSE),
            target=(Applied("jitter_limit_off", 1, -2.378e-08),),
        ),
    ),
    Case(
        "an upper limit of a uniform draw that leaves its range as it is",
        "the kernel takes the rounded range, not the limit",
        "TYPE_I",
        _pair(
            1049624113,
            (
                Block("pixels"),
                Block("linear"),
                Block("dropout", {"p": 0.5}),
                Block("jitter", {"low": -0.05, "high": 0.1}),
                Block("l1"),
                Block("whole"),
                Block("momentum", {"lr": 0.03, "momentum": 0.95}),
            ),
            target=(Applied("jitter_limit_off", 3, 1.193e-07),),
        ),
    ),
    Case(
        "an eps beside a number that the other program has in a formula",
        "that number was free, and hid the eps",
        "TYPE_II",
        _pair(
            1100713304,
            (
                Block("features"),
                Block("layer_norm", {"eps": 1e-05}),
                Block("gelu"),
                Block("masked_cross_entropy"),
            ),
            target=(Applied("gelu_by_erfc", 2),),
            reference=(Applied("norm_eps_off", 1, 3.706e-05),),
        ),
    ),
    Case(
        "the kinks of relu and abs at zeros of a dropout",
        "slopes that one program has alone followed another decision, and were accused",
        "TYPE_I",
        Pair(
            Spec(
                886348797,
                4,
                3,
                6,
                (
                    _EMBEDDING,
                    Block("dropout", {"p": 0.5}),
                    Block("floors"),
                    Block("binary"),
                    Block("accumulated"),
                    Block("adam", {"lr": 0.001, "step": 3}),
                ),
                module=True,
            ),
            (Applied("by_identity_matrix", 2),),
            (Applied("binary_stable", 3), Applied("other_layout", 1)),
        ),
    ),
    Case(
        "a small mean of a draw that is stored with it",
        "the draw was taken for the rounding of the other program's, scaled, and passed with its mean",
        "TYPE_II",
        Pair(
            Spec(
                91894340,
                4,
                3,
                4,
                (
                    Block("pixels"),
                    Block("linear"),
                    Block("noise", {"std": 0.1}),
                    Block("l1"),
                    Block("scaled", {"scale": 65536.0}),
                    Block("sgd", {"lr": 0.03}),
                ),
            ),
            (Applied("noise_mean_off", 2, 1.77e-09),),
            (Applied("thirded", 1),),
        ),
    ),
    Case(
        "a decay of nine digits after a number was read in bf16",
        "the decay was taken for a number that Python computed from what it had read, which explained the change",
        "TYPE_II",
        Pair(
            Spec(
                42940321,
                4,
                3,
                4,
                (
                    Block("features"),
                    Block("layer_norm", {"eps": 1e-05}),
                    Block("silu"),
                    Block("binary"),
                    Block("second", {"lr": 0.03}),
                    Block("averaged", {"lr": 0.1, "decay": 0.99}),
                ),
                autocast=True,
                module=True,
            ),
            (Applied("average_decay_off", 5, -0.0005124), Applied("scalar_through_python", 2)),
        ),
    ),
    Case(
        "a reference that took ties another way",
        "the reference was said to be at fault, since its execution was held against our choice among equal elements",
        "TYPE_I",
        Pair(
            Spec(
                1817511742,
                4,
                4,
                6,
                (
                    Block("hashed"),
                    Block("dropout", {"p": 0.5}),
                    Block("damped", {"scale": 0.37}),
                    Block("top_k", {"k": 2}),
                    Block("binary"),
                    Block("scaled", {"scale": 1024.0}),
                    Block("momentum", {"lr": 0.1, "momentum": 0.9}),
                ),
                module=False,
            ),
            (Applied("top_k_sorted", 3), Applied("reversed_twice", 1)),
            (Applied("recomputed", 2),),
        ),
    ),
    Case(
        "a clip beside two draws of one kind",
        "draws that changed places parted the clip's ties, whose freedom explained its other limit",
        "TYPE_II",
        Pair(
            Spec(
                633578272,
                2,
                3,
                4,
                (
                    _EMBEDDING,
                    Block("two_draws"),
                    Block("gelu_tanh"),
                    Block("noise", {"std": 0.1}),
                    Block("policy", {"clip": 0.2}),
                    Block("second", {"lr": 0.03}),
                    Block("adam", {"lr": 0.01, "step": 3}),
                ),
                module=True,
            ),
            (),
            (Applied("clip_off", 4, -0.01252),),
        ),
    ),
    Case(
        "a row of zeros made one long",
        "the rewrite divided it by its largest element",
        "TYPE_I",
        _pair(
            0,
            (Block("features"), Block("linear"), Block("dropout", {"p": 0.5}), Block("unit"), _MSE),
            target=(Applied("unit_scaled_first", 3),),
            width=2,
        ),
    ),
    Case(
        "the largest of equal elements, chosen by a mask",
        "the rewrite kept all that equal the last one kept",
        "TYPE_I",
        _pair(
            83000585,
            (_EMBEDDING, Block("mask"), Block("top_k", {"k": 2}), _MSE),
            target=(Applied("top_k_masked", 2),),
        ),
    ),
)
