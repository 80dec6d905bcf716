# SPDX-License-Identifier: Apache-2.0
"""Quantised arrays: packed words, scales and biases to the last bit, values,
products of every width, group and mode, derivatives, bad input.

The tables are known values; `quantized.py` of tests/sweep is a second
implementation, written in NumPy from the rules of the formats.
"""

import itertools
import sys
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import quantized  # noqa: E402

F = np.float32
A = np.array([((7 * i) % 32 - 15) / 8 for i in range(32)], F)
ROWS = {"A": A, "B": -A, "Z": A * F(0), "K": np.full(32, 2.5, F), "P": np.arange(1, 33, dtype=F) / 4}
X = np.array([[((5 * (32 * r + i)) % 13 - 6) / 4 for i in range(32)] for r in range(2)], F)
AP = np.stack([ROWS["A"], ROWS["P"]])
BITS = (1, 2, 3, 4, 5, 6, 8)
FORMATS = [("affine", b, g) for b in BITS for g in (32, 64, 128)] + [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]

# fmt: off
# bits, row, words, scale, bias
AFFINE = [
    (1, "A", "cc673398", 3.875, -1.875),
    (1, "B", "3398cc67", 3.875, -2.0),
    (1, "Z", "00000000", 1.0000000116860974e-07, -0.0),
    (1, "K", "00000000", 1.0000000116860974e-07, 2.5),
    (1, "P", "ffff0000", 7.75, 0.25),
    (2, "A", "f1b1bc6f 6b1bdac6", -1.0, 2.0),
    (2, "B", "f1b1bc6f 6b1bdac6", 1.0, -2.0),
    (2, "Z", "00000000 00000000", -1.0000000116860974e-07, 0.0),
    (2, "K", "00000000 00000000", -1.0000000116860974e-07, 2.5),
    (2, "P", "aaaaabff 00055555", -2.6666667461395264, 8.0),
    (3, "A", "82979537 dc14dcb9 4ef0a6e5", -0.5, 2.0),
    (3, "B", "82979537 dc14dcb9 4ef0a6e5", 0.5, -2.0),
    (3, "Z", "00000000 00000000 00000000", -1.0000000116860974e-07, 0.0),
    (3, "K", "00000000 00000000 00000000", -1.0000000116860974e-07, 2.5),
    (3, "P", "6db76dbf 26db7249 00124a49", -1.1428571939468384, 8.0),
    (4, "A", "7ae258cf be269c04 f26ad048 36ae148c", -0.25, 2.0),
    (4, "B", "7ae258cf be269c04 f26ad048 36ae148c", 0.25, -2.0),
    (4, "Z", "00000000 00000000 00000000 00000000", -1.0000000116860974e-07, 0.0),
    (4, "K", "00000000 00000000 00000000 00000000", -1.0000000116860974e-07, 2.5),
    (4, "P", "bccddeef 78899aab 44556677 00112233", -0.5333333611488342, 8.0),
    (5, "A", "7835471f b9640775 050fb748 17f1593d 3369b126", -0.125, 2.0),
    (5, "B", "7835471f b9640775 050fb748 17f1593d 3369b126", 0.125, -2.0),
    (5, "P", "75be77df 3a56d7c6 35cf8465 c74254b6 00443214", -0.25, 8.0),
    (6, "A", "86563cbf 400e76be b7c21797 67d8241f 386ff8a6 31ba7811", -0.06060606241226196, 2.0),
    (6, "B", "86563cbf 400e76be b7c21797 67d8241f 386ff8a6 31ba7811", 0.06060606241226196, -2.0),
    (6, "P", "77e7bf7f bb6fc73d 823967a6 1661a71e a30e4125 00210620", -0.1230769231915474, 8.0),
    (8, "A", "528cc6ff 74ade719 94ce003a b6ef215b d608427c f829639d 104a84be 326ba5df", -0.01515151560306549, 2.0),
    (8, "B", "528cc6ff 74ade719 94ce003a b6ef215b d608427c f829639d 104a84be 326ba5df", 0.01515151560306549, -2.0),
    (8, "P", "e6eef7ff c5cdd6de a4adb5bd 848c949c 636b737b 424a525a 2129313a 00081019", -0.03041825070977211, 8.0),
]
AFFINE_VALUES = {
    2: [-1.0, -1.0, 0.0, 1.0, 2.0, -1.0, -1.0, 0.0],
    3: [-1.5, -1.0, 0.0, 1.0, 1.5, -1.5, -0.5, 0.0],
    4: [-1.75, -1.0, 0.0, 0.75, 1.5, -1.5, -0.5, 0.25],
    5: [-1.875, -1.0, -0.125, 0.75, 1.625, -1.5, -0.625, 0.25],
    6: [
        -1.8181819915771484, -1.0303030014038086, -0.12121224403381348, 0.7272727489471436,
        1.6363636255264282, -1.5151515007019043, -0.6060607433319092, 0.24242424964904785,
    ],
    8: [
        -1.8636364936828613, -1.0, -0.12121224403381348, 0.7575757503509521,
        1.621212124824524, -1.5, -0.6212122440338135, 0.24242424964904785,
    ],
}
FP8 = [
    ("0.0", 0x00),
    ("-0.0", 0x80),
    ("1.0", 0x38),
    ("-1.5", 0xBC),
    ("0.0010000000474974513", 0x01),
    ("0.0009765625", 0x00),
    ("0.00146484375", 0x01),
    ("0.0625", 0x18),
    ("17.0", 0x58),
    ("18.0", 0x59),
    ("19.0", 0x5A),
    ("240.0", 0x77),
    ("447.0", 0x7E),
    ("448.0", 0x7E),
    ("460.0", 0x7E),
    ("464.0", 0x7E),
    ("1000.0", 0x7E),
    ("inf", 0x7E),
    ("nan", 0x7E),
]
# mode, global scale, row, words, bytes of the scales
FLOATS = [
    ("mxfp4", None, "A", "1ad530ce bd529c64 d529c640 41ad530b", "7e"),
    ("mxfp4", None, "B", "925db046 35da14ec 5da14ec0 c925db03", "7e"),
    ("mxfp4", None, "Z", "00000000 00000000 00000000 00000000", "7f"),
    ("mxfp4", None, "K", "66666666 66666666 66666666 66666666", "7e"),
    ("mxfp4", None, "P", "22111100 44333322 55554444 66665555", "80"),
    ("mxfp8", None, "A", "6cd8f0f7 60eaf475 e0f17871 ecf5746a f2777058 f67368e4 766e00ee 7264e8f3", "78"),
    ("mxfp8", None, "B", "ec587077 e06a74f5 6071f8f1 6c75f4ea 72f7f0d8 76f3e864 f6ee806e f2e46873", "78"),
    ("mxfp8", None, "Z", "00808080 00808000 80800000 80800000 80000000 80000080 00000080 00008080", "7f"),
    ("mxfp8", None, "K", "7a7a7a7a 7a7a7a7a 7a7a7a7a 7a7a7a7a 7a7a7a7a 7a7a7a7a 7a7a7a7a 7a7a7a7a", "78"),
    ("mxfp8", None, "P", "605c5850 68666462 6c6b6a69 706f6e6d 72727170 74747372 76767574 78787776", "7a"),
    ("nvfp4", None, "A", "1ce649df ce649d75 f63ae751 62be750d", "2b 2a"),
    ("nvfp4", None, "B", "946ec157 46ec15fd 7eb26fd9 ea36fd05", "2b 2a"),
    ("nvfp4", None, "Z", "00000000 00000000 00000000 00000000", "00 00"),
    ("nvfp4", None, "K", "77777777 77777777 77777777 77777777", "2d 2d"),
    ("nvfp4", None, "P", "55443211 77766665 66666555 77777666", "33 3b"),
    ("nvfp4", 4.0, "A", "2ce649df ce64ad75 f63ae751 62be750d", "76 75"),
]
FLOAT_VALUES = {
    "mxfp4": [-2.0, -1.0, 0.0, 0.75, 1.5, -1.5, -0.5, 0.25],
    "mxfp8": [-1.875, -1.0, -0.125, 0.75, 1.625, -1.5, -0.625, 0.25],
    "nvfp4": [-2.0625, -1.03125, -0.171875, 0.6875, 1.375, -1.375, -0.6875, 0.171875],
}

# fmt: on
MANTISSA = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


def words_of(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


def to_np(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32) if x.dtype == mx.bfloat16 else x)


def same_bytes(a: mx.array, b: np.ndarray) -> bool:
    a = to_np(a)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def row(name: str, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.array(ROWS[name][None]).astype(dtype)


# ---- known values -----------------------------------------------------------
@pytest.mark.parametrize(("bits", "name", "words", "scale", "bias"), AFFINE)
def test_quantize__affine_groups_are_the_known_ones(bits: int, name: str, words: str, scale: float, bias: float) -> None:
    w, s, b = mx.quantize(row(name), group_size=32, bits=bits)
    assert np.array(w)[0].tolist() == words_of(words)
    assert same_bytes(s, np.array([[scale]], F))
    assert same_bytes(b, np.array([[bias]], F))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_quantize__scales_have_the_type_of_w(dtype: mx.Dtype) -> None:
    w, s, b = mx.quantize(row("A", dtype), group_size=32, bits=4)
    assert np.array(w)[0].tolist() == words_of("7ae258cf be269c04 f26ad048 36ae148c")
    assert (s.dtype, s.item(), b.dtype, b.item()) == (dtype, -0.25, dtype, 2.0)


@pytest.mark.parametrize("bits", AFFINE_VALUES)
def test_dequantize__affine_values_are_the_known_ones(bits: int) -> None:
    q = mx.quantize(row("A"), group_size=32, bits=bits)
    assert mx.dequantize(*q, group_size=32, bits=bits)[0, :8].tolist() == AFFINE_VALUES[bits]


@pytest.mark.parametrize(("value", "byte"), FP8)
def test_to_fp8__bytes_are_the_known_ones(value: str, byte: int) -> None:
    assert mx.to_fp8(mx.array([float(value)])).item() == byte


def test_from_fp8__numbers_are_the_known_ones() -> None:
    got = mx.from_fp8(mx.array([0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0x7F, 0x80, 0xFF], dtype=mx.uint8), mx.float32)
    want = np.array([0.0, 0.001953125, 0.013671875, 0.015625, 1.0, 448.0, np.nan, -0.0, np.nan], F)
    assert np.array_equal(np.array(got), want, equal_nan=True)
    assert np.signbit(np.array(got)[7])
    assert mx.from_fp8(mx.array([1], dtype=mx.uint8)).dtype == mx.bfloat16


def test_fp8__every_byte_comes_back() -> None:
    numbers = np.arange(256, dtype=np.uint8)
    numbers = numbers[(numbers & 0x7F) != 0x7F]
    for dtype in (mx.float16, mx.bfloat16, mx.float32, mx.float64):
        assert np.array_equal(np.array(mx.to_fp8(mx.from_fp8(mx.array(numbers), dtype))), numbers)


def test_to_fp8__a_double_is_rounded_once() -> None:
    tie = 1.0625  # between 1 and 1.125: even is 1
    x = mx.array(np.array([tie, np.nextafter(tie, 2), np.nextafter(tie, 0)]), dtype=mx.float64)
    assert mx.to_fp8(x).tolist() == [0x38, 0x39, 0x38]


@pytest.mark.parametrize(("mode", "scale", "name", "words", "bytes_"), FLOATS)
def test_quantize__float_groups_are_the_known_ones(mode: str, scale: float | None, name: str, words: str, bytes_: str) -> None:
    q = mx.quantize(row(name), mode=mode, global_scale=None if scale is None else mx.array(scale))
    assert len(q) == 2
    assert np.array(q[0])[0].tolist() == words_of(words)
    assert np.array(q[1])[0].tolist() == words_of(bytes_)


@pytest.mark.parametrize("mode", FLOAT_VALUES)
def test_dequantize__float_values_are_the_known_ones(mode: str) -> None:
    q = mx.quantize(row("A"), mode=mode)
    assert mx.dequantize(*q, mode=mode, dtype=mx.float32)[0, :8].tolist() == FLOAT_VALUES[mode]
    assert mx.dequantize(*q, mode=mode).dtype == mx.bfloat16


def test_fp4__codes_are_the_sixteen_numbers() -> None:
    words = mx.array([[0x76543210, 0xFEDCBA98]], dtype=mx.uint32)
    got = mx.dequantize(words, mx.array([[0x38]], dtype=mx.uint8), mode="nvfp4", dtype=mx.float32)
    want = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert got[0].tolist() == want + [-v for v in want]
    assert np.signbit(np.array(got)[0, 8])


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75, -5.0, 6.0, 0, 0, 0, 0, 0]


def test_quantize__ties_take_the_lower_code() -> None:
    q = mx.quantize(mx.array([TIES]), mode="nvfp4")
    got = mx.dequantize(*q, mode="nvfp4", dtype=mx.float32)[0].tolist()
    assert got[:10] == [0, 0.5, 1, 1.5, 2, 3, 4, 0, -0.5, -4]


def test_qqmm__ties_of_x_take_the_even_element() -> None:
    six = mx.quantize(6 * mx.eye(16), mode="nvfp4")
    got = (mx.qqmm(mx.array([TIES]), *six, mode="nvfp4")[0] / 6).tolist()
    assert got[:10] == [0, 1, 1, 2, 2, 4, 4, 0, -1, -4]


PRODUCTS = [
    ("affine", 4, [[-3.5, 6.9333343505859375], [10.125, 0.5333328247070312]]),
    ("affine", 3, [[-5.0, 5.714284896850586], [11.0, 0.8571434020996094]]),
    ("mxfp4", 4, [[-2.9375, 8.75], [9.625, -3.0]]),
    ("mxfp8", 8, [[-3.59375, 6.75], [10.1875, 2.25]]),
    ("nvfp4", 4, [[-2.9140625, 6.2734375], [9.921875, 0.0859375]]),
]


@pytest.mark.parametrize(("mode", "bits", "want"), PRODUCTS)
def test_quantized_matmul__products_are_the_known_ones(mode: str, bits: int, want: list) -> None:
    kw = dict(mode=mode) if mode != "affine" else dict(group_size=32, bits=bits)
    got = np.array(mx.quantized_matmul(mx.array(X), *mx.quantize(mx.array(AP), **kw), **kw))
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mode", "want"), [("nvfp4", [[-1.8125, 6.1015625]]), ("mxfp8", [[-3.59375, 6.75]])])
def test_qqmm__products_are_the_known_ones(mode: str, want: list) -> None:
    got = np.array(mx.qqmm(mx.array(X[:1]), *mx.quantize(mx.array(AP), mode=mode), mode=mode))
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- every format -----------------------------------------------------------
def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal((*shape[:-1], 1)))).astype(F)


@pytest.mark.parametrize(("mode", "bits", "group"), FORMATS)
def test_quantize__equals_the_second_implementation(mode: str, bits: int, group: int) -> None:
    w = drawn(5, 384, seed=bits)
    w[1, :group] = 0
    w[2, :group] = -3
    w[3, 1:group] = 0
    w[4] = np.abs(w[4])
    got = mx.quantize(mx.array(w), group_size=group, bits=bits, mode=mode)
    want = quantized.quantize(w, group, bits, mode)
    assert np.array_equal(np.array(got[0]), want[0])
    for g, s in zip(got[1:], want[1:], strict=True):
        assert np.array_equal(np.array(g), s)
    values = mx.dequantize(*got, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
    exact = quantized.dequantize(*want, group_size=group, bits=bits, mode=mode)
    assert np.allclose(np.array(values), exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())


# around each tile: rows of x of the two routes, columns around the panels and
# the bands, depths of one group and beyond a span
EXTENTS = [
    (1, 1, 1), (1, 33, 3), (2, 15, 1), (3, 64, 1), (4, 65, 2), (5, 7, 5), (8, 9, 6), (8, 257, 1), (9, 31, 1), (11, 33, 3),
    (12, 16, 2), (13, 32, 1), (25, 97, 2),
]  # fmt: skip


@pytest.mark.parametrize("dtype", MANTISSA)
@pytest.mark.parametrize(("mode", "bits", "group"), FORMATS)
def test_quantized_matmul__equals_the_product_of_the_values(mode: str, bits: int, group: int, dtype: str) -> None:
    kw = dict(group_size=group, bits=bits, mode=mode)
    t = getattr(mx, dtype)
    for (m, n, groups), turn in itertools.product(EXTENTS, (True, False)):
        k = groups * group
        w = mx.array(drawn(n, k) if turn else drawn(n, k + group)).astype(t)
        x = mx.array(drawn(m, k if turn else n)).astype(t)
        q = mx.quantize(w, **kw)
        values = quantized.dequantize(*[to_np(p) for p in q], **kw)
        left, right = to_np(x).astype(np.float64), values.T if turn else values
        y = mx.quantized_matmul(x, *q, transpose=turn, **kw)
        # a value near 0 is the sum of two that are not
        size = np.abs(left) @ (np.abs(right) + np.abs(right).max())
        assert y.dtype == t
        assert np.all(np.abs(to_np(y) - left @ right) <= 3 * MANTISSA[dtype] * size), (m, n, k, turn)


@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), ("affine", 1, 32), ("affine", 6, 128), ("nvfp4", 4, 16)])
def test_quantized_matmul__rows_longer_than_a_span(mode: str, bits: int, group: int) -> None:
    kw = dict(group_size=group, bits=bits, mode=mode)
    w, x = drawn(3, 2 * 8192 + 3 * group), drawn(2, 2 * 8192 + 3 * group)
    q = mx.quantize(mx.array(w), **kw)
    want = x.astype(np.float64) @ quantized.dequantize(*[to_np(p) for p in q], **kw).T
    got = np.array(mx.quantized_matmul(mx.array(x), *q, **kw))
    assert np.allclose(got, want, atol=3e-6 * np.abs(x).sum() * np.abs(w).max())


def test_quantized_matmul__leading_axes_broadcast() -> None:
    for rows in (1, 5, 12):
        x, w = mx.array(drawn(2, 3, rows, 64)), mx.array(drawn(2, 1, 7, 64))
        q = mx.quantize(w)
        want = x @ mx.swapaxes(mx.dequantize(*q), -1, -2)
        assert mx.allclose(mx.quantized_matmul(x, *q), want, atol=1e-4)
        alone = x[0, 0] @ mx.swapaxes(mx.dequantize(*q), -1, -2)
        assert mx.allclose(mx.quantized_matmul(x[0, 0], *q), alone, atol=1e-4)
    y = mx.quantized_matmul(x[0, 0, 0], *mx.quantize(w[0, 0]))
    assert y.shape == (7,)


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8", "nvfp4"])
def test_quantized_matmul__bfloat16_rows_of_any_number(mode: str, tiny: bool) -> None:
    """Tiny numbers cannot go in pairs: the way is another then."""
    kinds = [dict(bits=b, group_size=g) for b in (1, 2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
    for kw in kinds if mode == "affine" else [{}]:
        for rows, outer, inner in ((9, 37, 128), (32, 70, 640), (100, 33, 256), (200, 65, 384)):
            x = mx.array(drawn(rows, inner)).astype(mx.bfloat16)
            if tiny:
                x = mx.where(mx.arange(inner) == 3, mx.array(1e-39, dtype=mx.bfloat16), x)
            q = mx.quantize(mx.array(drawn(outer, inner)).astype(mx.bfloat16), mode=mode, **kw)
            w = mx.dequantize(
                q[0], *[a.astype(mx.float32) if a.dtype == mx.bfloat16 else a for a in q[1:]], mode=mode, dtype=mx.float32, **kw
            )
            want = to_np(x).astype("f8") @ to_np(w).astype("f8").T
            got = to_np(mx.quantized_matmul(x, *q, mode=mode, **kw))
            assert np.abs(got - want).max() <= 5e-3 * np.abs(want).max()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 8, 128), ("affine", 3, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)])
def test_quantized_matmul__huge_and_infinite_numbers_meet_values(mode: str, bits: int, group: int, dtype: str) -> None:
    """Sums of codes would exceed float32 before their scale makes them small."""
    kw = dict(group_size=group, bits=bits, mode=mode)
    t, inner = getattr(mx, dtype), 3 * 128
    largest = 6e4 if dtype == "float16" else 3e38
    q = mx.quantize(mx.array(1e-3 * drawn(37, inner) / 16), **kw)
    values = quantized.dequantize(*[to_np(p) for p in q], **kw).astype("f8")
    if dtype != "float32" and mode == "affine":
        q = [q[0], *[a.astype(t) for a in q[1:]]]
        values = quantized.dequantize(*[to_np(p).astype("f4") if i else to_np(p) for i, p in enumerate(q)], **kw).astype("f8")
    for rows in (1, 2, 7, 31, 33, 130):
        x = drawn(rows, inner)
        x[::2, 5] = largest
        x[::2, 6:9] = -largest / 2
        plain = np.array(mx.quantized_matmul(mx.array(x).astype(t), *q, **kw).astype(mx.float32), "f8")
        x = to_np(mx.array(x).astype(t)).astype("f8")
        size = np.abs(x) @ (np.abs(values) + np.abs(values).max()).T
        assert np.all(np.isfinite(plain))
        assert np.all(np.abs(plain - x @ values.T) <= 4 * MANTISSA[dtype] * size)
        x[::2, 7] = np.inf
        got = np.array(mx.quantized_matmul(mx.array(x.astype("f4")).astype(t), *q, **kw).astype(mx.float32))
        sure = np.abs(values[:, 7]) > 1e-7
        assert np.all(got[::2][:, sure] == np.sign(values[sure, 7]) * np.inf)
        assert np.all(np.isfinite(got[1::2]))


@pytest.mark.parametrize("rows", [1, 4, 9, 16, 31, 33, 97])
@pytest.mark.parametrize("bits", [3, 4, 8])
def test_quantized_matmul__infinity_times_a_value_of_zero_is_nan(rows: int, bits: int) -> None:
    """code * scale + bias is rounded twice: 0, where one rounding leaves some."""
    code, inner = 3, 128
    stream = sum(code << (i * bits) for i in range(inner))
    words = np.array([[(stream >> (32 * i)) & 0xFFFFFFFF for i in range(inner * bits // 32)]] * 50, np.uint32)
    scale = np.full((50, 2), 0.1, F)
    bias = -(scale * F(code))
    kw = dict(group_size=64, bits=bits)
    q = [mx.array(a) for a in (words, scale, bias)]
    assert np.all(to_np(mx.dequantize(*q, **kw)) == 0)
    x = np.ones((rows, inner), F)
    x[0, 5] = np.inf
    got = to_np(mx.quantized_matmul(mx.array(x), *q, **kw))
    assert np.all(np.isnan(got[0]))
    assert np.all(np.isfinite(got[1:]))


def test_quantized_matmul__types_are_promoted() -> None:
    w, s, b = mx.quantize(mx.array(drawn(4, 64)))
    x = mx.ones((1, 64))
    assert mx.quantized_matmul(x.astype(mx.float16), w, s, b).dtype == mx.float32
    assert mx.quantized_matmul(x.astype(mx.int32), w, s, b).dtype == mx.float32
    half = [s.astype(mx.bfloat16), b.astype(mx.bfloat16)]
    assert mx.quantized_matmul(x.astype(mx.bfloat16), w, *half).dtype == mx.bfloat16
    assert mx.quantized_matmul(x.astype(mx.float64), w, s, b).dtype == mx.float64
    q = mx.quantize(mx.array(drawn(4, 64)), mode="mxfp4")
    assert mx.quantized_matmul(x.astype(mx.float16), *q, mode="mxfp4").dtype == mx.float16


def test_quantized_matmul__empty_operands() -> None:
    q = mx.quantize(mx.ones((8, 64)))
    assert mx.quantized_matmul(mx.zeros((0, 64)), *q).shape == (0, 8)
    nothing = mx.quantize(mx.ones((8, 0)))
    assert mx.quantized_matmul(mx.zeros((3, 0)), *nothing).tolist() == [[0.0] * 8] * 3
    assert mx.quantized_matmul(mx.zeros((3, 64)), *mx.quantize(mx.ones((0, 64)))).shape == (3, 0)
    assert [a.shape for a in mx.quantize(mx.zeros((0, 64)))] == [(0, 8), (0, 1), (0, 1)]


def test_quantize__a_nan_stays_visible() -> None:
    w = drawn(1, 64)
    w[0, 3] = np.nan
    assert np.isnan(np.array(mx.dequantize(*mx.quantize(mx.array(w), group_size=32), group_size=32))[0, :32]).all()


def test_quantize__infinity_in_a_float_group_is_no_error() -> None:
    for bad in (np.inf, np.nan):
        w = drawn(1, 32)
        w[0, 3] = bad
        for mode in ("mxfp4", "mxfp8", "nvfp4"):
            mx.eval(mx.quantize(mx.array(w), mode=mode))


def test_quantize__of_a_view_is_that_of_its_copy() -> None:
    w = mx.array(drawn(64, 64))
    for a, b in zip(mx.quantize(w.T), mx.quantize(mx.contiguous(w.T)), strict=True):
        assert mx.array_equal(a, b)
    x = mx.array(drawn(64, 5)).T
    q = mx.quantize(w)
    assert mx.array_equal(mx.quantized_matmul(x, *q), mx.quantized_matmul(mx.contiguous(x), *q))


def test_global_scale__of_nvfp4_goes_there_and_back() -> None:
    w = drawn(4, 64)
    g = mx.array(float(np.abs(w).max()))
    q = mx.quantize(mx.array(w), mode="nvfp4", global_scale=g)
    values = np.array(mx.dequantize(*q, mode="nvfp4", global_scale=g, dtype=mx.float32))
    assert np.abs(values - w).max() < 0.2 * np.abs(w).max()
    got = mx.gather_qmm(mx.array(drawn(3, 64))[None], *[a[None] for a in q], mode="nvfp4", global_scale=g)
    assert np.allclose(np.array(got)[0], drawn(3, 64) @ values.T, atol=1e-3)


# ---- picked products --------------------------------------------------------
@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("turn", [True, False])
def test_gather_qmm__equals_a_loop(rows: int, turn: bool) -> None:
    x, w = drawn(4, rows, 64), drawn(3, 64, 64)
    q = mx.quantize(mx.array(w), group_size=32, bits=5)
    values = quantized.dequantize(*[np.array(a) for a in q], group_size=32, bits=5)
    lhs, rhs = np.array([[0, 3, 1], [2, 2, 0]]), np.array([2, 0, -1])
    got = mx.gather_qmm(mx.array(x), *q, mx.array(lhs), mx.array(rhs), transpose=turn, group_size=32, bits=5)
    for i, j in np.ndindex(2, 3):
        v = values[rhs[j]]
        assert np.allclose(np.array(got)[i, j], x[lhs[i, j]] @ (v.T if turn else v), atol=2e-4)


def test_gather_qmm__many_rows_for_few_matrices() -> None:
    x, w = drawn(300, 1, 64), drawn(3, 33, 64)
    q = mx.quantize(mx.array(w))
    pick = np.random.default_rng(0).integers(0, 3, 300)
    values = quantized.dequantize(*[np.array(a) for a in q])
    got = np.array(mx.gather_qmm(mx.array(x), *q, rhs_indices=mx.array(pick)))
    assert np.allclose(got, x @ np.swapaxes(values[pick], -1, -2), atol=1e-3)
    order = np.argsort(pick, kind="stable")
    again = mx.gather_qmm(mx.array(x[order]), *q, rhs_indices=mx.array(pick[order]), sorted_indices=True)
    assert np.array_equal(np.array(again), got[order])


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), ("affine", 5, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)])
def test_gather_qmm__bfloat16_rows_are_the_products_of_each(mode: str, bits: int, group: int, tiny: bool) -> None:
    """Runs of one row, of some and of more than a run may have; the same bits in any order."""
    kw = dict(group_size=group, bits=bits, mode=mode)
    pick = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3, 5], [1, 5, 20, 41, 130]))
    x = mx.array(drawn(len(pick), 1, 192)).astype(mx.bfloat16)
    if tiny:
        x = mx.where(mx.arange(192) == 3, mx.array(1e-39, dtype=mx.bfloat16), x)
    q = mx.quantize(mx.array(drawn(6 * 101, 192)), **kw)
    values = quantized.dequantize(*[to_np(p) for p in q], **kw).reshape(6, 101, 192)
    q = [mx.reshape(a, (6, 101, -1)) for a in q]
    got = to_np(mx.gather_qmm(x, *q, rhs_indices=mx.array(pick), **kw))
    want = to_np(x).astype("f8") @ np.swapaxes(values[pick], -1, -2)
    assert np.abs(got - want).max() <= 5e-3 * np.abs(want).max()
    order = np.argsort(pick, kind="stable")
    again = mx.gather_qmm(x[mx.array(order)], *q, rhs_indices=mx.array(pick[order]), sorted_indices=True, **kw)
    assert np.array_equal(to_np(again), got[order])


def test_gather_qmm__an_index_out_of_range_names_its_line() -> None:
    q = mx.quantize(mx.array(drawn(3, 2, 64)))
    y = mx.gather_qmm(mx.ones((1, 1, 64)), *q, rhs_indices=mx.array([0, 3]))
    with pytest.raises(IndexError, match="index 3 is out of range") as e:
        mx.eval(y)
    assert "test_quant.py" in "".join(e.value.__notes__)
    with pytest.raises(IndexError):
        mx.eval(mx.vmap(lambda x: mx.gather_qmm(x, *q, rhs_indices=mx.array([0, 3])))(mx.ones((2, 1, 1, 64))))


def test_gather_qqmm__equals_qqmm_of_each() -> None:
    x, w = mx.array(drawn(2, 3, 64)), mx.array(drawn(3, 5, 64))
    q = mx.quantize(w, mode="nvfp4")
    got = mx.gather_qqmm(x, *q, rhs_indices=mx.array([2, 0]))
    plain = mx.gather_qqmm(x, w, rhs_indices=mx.array([2, 0]))
    for i, j in enumerate((2, 0)):
        assert mx.allclose(got[i], mx.qqmm(x[i], q[0][j], q[1][j]), atol=1e-4)
        assert mx.allclose(plain[i], got[i], atol=1e-4)


def test_qqmm__both_global_scales() -> None:
    x, w = drawn(3, 64), drawn(5, 64)
    gx, gw = (mx.array(float(np.abs(a).max())) for a in (x, w))
    q = mx.quantize(mx.array(w), mode="nvfp4", global_scale=gw)
    got = mx.qqmm(mx.array(x), *q, global_scale_x=gx, global_scale_w=gw)
    want = quantized.qqmm(x, np.array(q[0]), np.array(q[1]), global_scale_x=gx.item(), global_scale_w=gw.item())
    assert np.allclose(np.array(got), want, atol=1e-3)
    plain = mx.qqmm(mx.array(x), mx.array(w), global_scale_x=gx, global_scale_w=gw)
    assert np.allclose(np.array(plain), want, atol=1e-3)


# ---- transforms -------------------------------------------------------------
@pytest.mark.parametrize("turn", [True, False])
@pytest.mark.parametrize("shape", [((3, 64), (6, 64)), ((2, 3, 64), (6, 64)), ((2, 3, 64), (2, 6, 64)), ((3, 64), (2, 6, 64))])
def test_quantized_matmul__derivatives_are_those_of_the_values(shape: tuple, turn: bool) -> None:
    kw = dict(group_size=32, bits=6)
    w, s, b = mx.quantize(mx.array(drawn(*shape[1])), **kw)
    x = mx.array(drawn(*shape[0]))[..., : 64 if turn else 6]

    def op(x, s, b):
        return mx.quantized_matmul(x, w, s, b, transpose=turn, **kw)

    def plain(x, s, b):
        v = mx.dequantize(w, s, b, **kw)
        return x @ (mx.swapaxes(v, -1, -2) if turn else v)

    primals = [x, s, b]
    c = mx.array(drawn(*op(*primals).shape, seed=1))
    tangents = [mx.array(drawn(*p.shape, seed=2)) for p in primals]
    for got, want in zip(mx.vjp(op, primals, [c])[1], mx.vjp(plain, primals, [c])[1], strict=True):
        assert mx.allclose(got, want, rtol=1e-4, atol=1e-3)
    assert mx.allclose(mx.jvp(op, primals, tangents)[1][0], mx.jvp(plain, primals, tangents)[1][0], rtol=1e-4, atol=1e-2)


def test_gather_qmm__derivatives_are_those_of_the_values() -> None:
    w, s, b = mx.quantize(mx.array(drawn(3, 6, 64)), bits=3)
    x, lhs, rhs = mx.array(drawn(2, 3, 64)), mx.array([0, 1, 1, 0]), mx.array([2, 0, 2, 2])

    def op(x, s, b):
        return mx.gather_qmm(x, w, s, b, lhs, rhs, bits=3)

    def plain(x, s, b):
        return x[lhs] @ mx.swapaxes(mx.dequantize(w, s, b, bits=3)[rhs], -1, -2)

    primals = [x, s, b]
    c = mx.array(drawn(4, 3, 6))
    tangents = [mx.array(drawn(*p.shape, seed=2)) for p in primals]
    for got, want in zip(mx.vjp(op, primals, [c])[1], mx.vjp(plain, primals, [c])[1], strict=True):
        assert mx.allclose(got, want, rtol=1e-4, atol=1e-3)
    assert mx.allclose(mx.jvp(op, primals, tangents)[1][0], mx.jvp(plain, primals, tangents)[1][0], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("bits", BITS)
def test_quantize__scales_and_biases_follow_w(bits: int) -> None:
    w = mx.array(drawn(3, 64, seed=7))

    def f(w):
        return list(mx.quantize(w, group_size=32, bits=bits)[1:])

    x, v = np.array(w).reshape(3, 2, 32), drawn(3, 64, seed=3).reshape(3, 2, 32)
    scale, bias = (np.array(a) for a in f(w))
    at = [np.take_along_axis(v, p(x, axis=-1, keepdims=True), -1)[..., 0] for p in (np.argmax, np.argmin)]
    if bits == 1:  # largest - least, least
        rates = [at[0] - at[1], at[1]]
    else:  # the bias is what is largest in size, the scale a fixed part of it
        edge = np.take_along_axis(v, np.argmax(np.abs(x), axis=-1)[..., None], -1)[..., 0]
        rates = [edge * scale / bias, edge]
    for got, want in zip(mx.jvp(f, [w], [mx.array(v.reshape(3, 64))])[1], rates, strict=True):
        assert np.allclose(np.array(got), want, rtol=1e-5, atol=1e-6)
    c = [drawn(3, 2, seed=k) for k in (1, 2)]
    back = np.array(mx.vjp(f, [w], [mx.array(a) for a in c])[1][0]).reshape(v.shape)
    assert np.isclose((back * v).sum(), sum((a * r).sum() for a, r in zip(c, rates, strict=True)), rtol=1e-4)


def test_quantize__the_least_scale_does_not_move() -> None:
    w = np.zeros((1, 32), F)
    w[0, :2] = 1e-9, -2e-9
    got = mx.grad(lambda w: mx.quantize(w, group_size=32)[1].sum())(mx.array(w))
    assert got.tolist() == [[0.0] * 32]


def test_dequantize__is_linear_in_scales_and_biases() -> None:
    w, s, b = mx.quantize(mx.array(drawn(2, 64)), bits=3)
    codes = quantized.unpack(np.array(w), 3)
    grads = mx.grad(lambda s, b: mx.dequantize(w, s, b, bits=3).sum(), argnums=(0, 1))(s, b)
    assert np.array_equal(np.array(grads[0])[:, 0], codes.sum(-1))
    assert grads[1].tolist() == [[64.0], [64.0]]


def test_qqmm__the_gradient_passes_the_rounding() -> None:
    x, w = mx.array(drawn(3, 64)), mx.array(drawn(5, 64))
    q = mx.quantize(w, mode="nvfp4")
    values = mx.dequantize(*q, mode="nvfp4", dtype=mx.float32)
    c = mx.array(drawn(3, 5))
    assert mx.allclose(mx.vjp(lambda x: mx.qqmm(x, *q), [x], [c])[1][0], c @ values, atol=1e-4)
    grads = mx.vjp(lambda x, w: mx.qqmm(x, w), [x, w], [c])[1]
    assert mx.allclose(grads[0], c @ values, atol=1e-4)
    assert mx.allclose(grads[1], c.T @ mx.qqmm(x, 6 * mx.eye(64)) / 6, atol=1e-3)


def test_packed_words__have_no_gradient() -> None:
    w, s, b = mx.quantize(mx.array(drawn(4, 64)))
    with pytest.raises(ValueError, match="no gradient"):
        mx.grad(lambda w: mx.quantized_matmul(mx.ones((1, 64)), w, s, b).sum())(w)


@pytest.mark.parametrize("mapped", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8", "nvfp4"])
def test_products__vmap_equals_a_loop(mode: str, mapped: tuple) -> None:
    xs, ws = mx.array(drawn(3, 2, 4, 64)), mx.array(drawn(3, 2, 5, 64, seed=1))
    pick = mx.array([1, 0, 1])
    functions = [
        lambda x, w: mx.quantized_matmul(x, *mx.quantize(w, mode=mode), mode=mode),
        lambda x, w: mx.gather_qmm(x, *mx.quantize(w, mode=mode), rhs_indices=pick, lhs_indices=pick, mode=mode),
        lambda x, w: mx.dequantize(*mx.quantize(w + x[:, :1], mode=mode), mode=mode),
    ]
    if mode != "affine":
        functions.append(lambda x, w: mx.qqmm(x, *mx.quantize(w[0], mode=mode), mode=mode))
        functions.append(lambda x, w: mx.gather_qqmm(x, w, rhs_indices=pick, lhs_indices=pick, mode=mode))
    axes = tuple(0 if i in mapped else None for i in (0, 1))
    given = [a if i in mapped else a[0] for i, a in enumerate((xs, ws))]
    for f in functions:
        got = mx.vmap(f, in_axes=axes)(*given)
        for k in range(3):
            alone = f(*(a[k] if i in mapped else a for i, a in enumerate(given)))
            assert mx.allclose(got[k].astype(mx.float32), alone.astype(mx.float32), atol=1e-4)


def test_global_scale__vmap_equals_a_loop() -> None:
    w, g = mx.array(drawn(3, 2, 64)), mx.array([1.0, 4.0, 9.0])
    packed, scales = mx.vmap(lambda w, g: mx.quantize(w, mode="nvfp4", global_scale=g))(w, g)
    values = mx.vmap(lambda p, s, g: mx.dequantize(p, s, mode="nvfp4", global_scale=g))(packed, scales, g)
    for k in range(3):
        q = mx.quantize(w[k], mode="nvfp4", global_scale=g[k])
        assert mx.array_equal(packed[k], q[0])
        assert mx.array_equal(scales[k], q[1])
        assert mx.array_equal(values[k], mx.dequantize(*q, mode="nvfp4", global_scale=g[k]))


def test_fp8__vmap_and_compile() -> None:
    x = mx.array(drawn(3, 4))
    assert mx.array_equal(mx.vmap(mx.to_fp8)(x), mx.to_fp8(x))
    assert mx.array_equal(mx.vmap(mx.from_fp8)(mx.to_fp8(x)), mx.from_fp8(mx.to_fp8(x)))
    q = mx.quantize(mx.array(drawn(4, 64)))
    for got, want in zip(mx.compile(lambda w: mx.quantize(w))(mx.array(drawn(4, 64))), q, strict=True):
        assert mx.array_equal(got, want)


# ---- bad input --------------------------------------------------------------
def packed(**kw) -> list:
    return list(mx.quantize(mx.zeros((2, 64)), **kw))


BAD = [
    (lambda: mx.quantize(mx.zeros((2, 33))), "divisible by the group size 64"),
    (lambda: mx.quantize(mx.zeros((64,))), "2 axes"),
    (lambda: mx.quantize(mx.zeros((2, 64), mx.int32)), "int32: needs float32"),
    (lambda: mx.quantize(mx.zeros((2, 64)), bits=7), "1, 2, 3, 4, 5, 6 and 8"),
    (lambda: mx.quantize(mx.zeros((2, 64)), bits=0), "1, 2, 3, 4, 5, 6 and 8"),
    (lambda: mx.quantize(mx.zeros((2, 64)), bits=2**62), "1, 2, 3, 4, 5, 6 and 8"),
    (lambda: mx.quantize(mx.zeros((2, 64)), group_size=16), "32, 64 and 128"),
    (lambda: mx.quantize(mx.zeros((2, 64)), group_size=-64), "32, 64 and 128"),
    (lambda: mx.quantize(mx.zeros((2, 64)), mode="zz"), "unknown mode 'zz'"),
    (lambda: mx.quantize(mx.zeros((2, 64)), mode="mxfp4", group_size=64), "mxfp4 has 32 and 4"),
    (lambda: mx.quantize(mx.zeros((2, 64)), mode="nvfp4", bits=8), "nvfp4 has 16 and 4"),
    (lambda: mx.quantize(mx.zeros((2, 64)), mode="mxfp4", global_scale=mx.array(1.0)), "only nvfp4"),
    (lambda: mx.quantize(mx.zeros((2, 64)), mode="nvfp4", global_scale=mx.ones((2,))), "one float32 number"),
    (lambda: mx.quantize(mx.zeros((2, 64)), mode="nvfp4", global_scale=mx.array(1)), "one float32 number"),
    (lambda: mx.quantize(mx.zeros((2, 64), mx.complex64)), "complex64"),
    (lambda: mx.quantize(mx.zeros((2, 64), mx.float64)), "float64"),
    (lambda: mx.dequantize(mx.zeros((2, 8)), mx.zeros((2, 1)), mx.zeros((2, 1))), "needs uint32"),
    (lambda: mx.dequantize(mx.zeros((8,), mx.uint32), mx.zeros((1,)), mx.zeros((1,))), "2 or more"),
    (lambda: mx.dequantize(mx.zeros((2, 8), mx.uint32), mx.zeros((2, 1))), "no biases"),
    (lambda: mx.dequantize(mx.zeros((2, 8), mx.uint32), mx.zeros((2, 2)), mx.zeros((2, 2))), r"\(2, 2\)"),
    (lambda: mx.dequantize(mx.zeros((2, 8), mx.uint32), mx.zeros((2, 1)), mx.zeros((1, 1))), "biases of shape"),
    (lambda: mx.dequantize(mx.zeros((2, 7), mx.uint32), mx.zeros((2, 1)), mx.zeros((2, 1))), r"\(2, 7\)"),
    (lambda: mx.dequantize(mx.zeros((2, 8), mx.uint32), mx.zeros((3, 1)), mx.zeros((3, 1))), r"\(3, 1\)"),
    (lambda: mx.dequantize(*packed(), dtype=mx.int32), "int32"),
    (lambda: mx.dequantize(*packed(mode="mxfp4"), mx.zeros((2, 2)), mode="mxfp4"), "does not have"),
    (lambda: mx.dequantize(*packed()[:2], mode="mxfp8"), "uint8"),
    (lambda: mx.dequantize(packed()[0], *[a.astype(mx.int32) for a in packed()[1:]]), "float types"),
    (lambda: mx.quantized_matmul(mx.zeros((2, 63)), *packed()), r"\(2, 63\)"),
    (lambda: mx.quantized_matmul(mx.zeros((2, 64)), *packed(), transpose=False), "must be 2"),
    (lambda: mx.quantized_matmul(mx.array(1.0), *packed()), "last axis of x"),
    (lambda: mx.quantized_matmul(mx.zeros((2, 64), mx.int32), *packed(mode="mxfp4"), mode="mxfp4"), "float type"),
    (lambda: mx.quantized_matmul(mx.zeros((2, 64), mx.complex64), *packed()), "real numbers"),
    (lambda: mx.quantized_matmul(mx.zeros((3, 2, 64)), *[mx.stack([a, a]) for a in packed()]), "broadcast"),
    (lambda: mx.quantized_matmul(mx.zeros((2, 64)), *packed(mode="mxfp4"), mx.zeros((2, 2)), mode="mxfp4"), "does not have"),
    (lambda: mx.gather_qmm(mx.zeros((2, 64)), *packed(), rhs_indices=mx.array([0.5])), "integers"),
    (lambda: mx.gather_qmm(mx.zeros((2, 64)), *packed(), mx.array([0, 0]), mx.array([0, 0, 0])), "do not broadcast"),
    (lambda: mx.gather_qmm(mx.zeros((2, 63)), *packed()), r"\(2, 63\)"),
    (lambda: mx.gather_qmm(mx.zeros((2, 64)), *packed(), global_scale=mx.array(1.0)), "only nvfp4"),
    (lambda: mx.qqmm(mx.zeros((2, 64)), *packed()[:2], mode="affine"), "quantized_matmul is for it"),
    (lambda: mx.qqmm(mx.zeros((2, 64)), packed(mode="nvfp4")[0]), "needs its scales"),
    (lambda: mx.qqmm(mx.zeros((2, 64)), mx.zeros((2, 64)), mx.zeros((2, 4), mx.uint8)), "has none"),
    (lambda: mx.qqmm(mx.zeros((2, 64), mx.float64), mx.zeros((2, 64))), "float64"),
    (lambda: mx.qqmm(mx.zeros((2, 64), mx.int32), mx.zeros((2, 64))), "int32"),
    (lambda: mx.qqmm(mx.zeros((2, 60)), mx.zeros((2, 60))), "divisible by the group size 16"),
    (lambda: mx.qqmm(mx.zeros((2, 64)), mx.zeros((1, 2, 64))), "2 axes"),
    (lambda: mx.qqmm(mx.zeros((2, 64)), mx.zeros((2, 64)), global_scale_x=mx.array(1.0)), "both or neither"),
    (lambda: mx.qqmm(mx.zeros((2, 64)), *packed(mode="nvfp4"), global_scale_w=mx.array(1.0)), "both or neither"),
    (lambda: mx.gather_qqmm(mx.zeros((2, 64)), mx.zeros((64,))), "2 axes"),
    (lambda: mx.to_fp8(mx.zeros((2,), mx.int32)), "float type"),
    (lambda: mx.to_fp8(mx.zeros((2,), mx.complex64)), "float type"),
    (lambda: mx.from_fp8(mx.zeros((2,), mx.int8)), "uint8"),
    (lambda: mx.from_fp8(mx.zeros((2,), mx.uint8), mx.int32), "float type"),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_input__is_refused_with_what_would_be_right(i: int) -> None:
    call, match = BAD[i]
    with pytest.raises(ValueError, match=match):
        call()
