# SPDX-License-Identifier: Apache-2.0
"""Attention: what a row gets depends on itself and on the keys that it sees.

Not on numbers of other rows, nor on what dropped keys and their values hold, nor on where
blocks of rows and keys end.
"""

from __future__ import annotations

from typing import Any

import marram.core as mx
import numpy as np
import pytest

DTYPES = ["float32", "float16", "bfloat16"]
NO_PIECES = {
    "float32": [np.inf, np.nan, 1e30, 1e-39],
    "float16": [np.inf, np.nan],
    "bfloat16": [np.inf, np.nan, 1e30, 1e-39, 2.0**-60],
}
INT = {"float32": mx.uint32, "float16": mx.uint16, "bfloat16": mx.uint16}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, dtype: str, mask: Any = None) -> mx.array:
    t = getattr(mx, dtype)
    m = mask if mask is None or isinstance(mask, str) else mx.array(mask)
    return mx.fast.scaled_dot_product_attention(*(mx.array(x).astype(t) for x in (q, k, v)), scale=q.shape[-1] ** -0.5, mask=m)


def bits(y: mx.array) -> np.ndarray:
    return np.array(y.view(INT[str(y.dtype).rsplit(".", maxsplit=1)[-1]]))


def wide(y: mx.array) -> np.ndarray:
    return np.array(y.astype(mx.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["plain", "causal", "keep"])
@pytest.mark.parametrize("size", [(1, 2, 70, 600), (2, 3, 333, 300)], ids=str)
def test_attention__of_a_row_does_not_depend_on_other_rows(size: tuple[int, ...], kind: str, dtype: str) -> None:
    """Whatever numbers those hold; and a row that no piece can hold is the same beside any."""
    heads, group, lq, lk = size
    q, k, v = drawn(1, heads * group, lq, 40), drawn(1, heads, lk, 40), drawn(1, heads, lk, 24, seed=1)
    mask = {"causal": "causal", "keep": np.random.default_rng(0).random((lq, lk)) < 0.7}.get(kind)
    good = bits(attend(q, k, v, dtype, mask))
    for x in NO_PIECES[dtype]:
        bad = q.copy()
        bad[:, 0, :, 7] = x
        all_bad = bits(attend(bad, k, v, dtype, mask))
        for rows in ([5], [0, 31, 32, lq - 1], list(range(0, lq, 2))):
            some = q.copy()
            some[:, 0, rows] = bad[:, 0, rows]
            got = bits(attend(some, k, v, dtype, mask))
            kept = np.setdiff1d(np.arange(lq), rows)
            assert np.array_equal(got[:, 1:], good[:, 1:]), x
            assert np.array_equal(got[:, 0, kept], good[:, 0, kept]), x
            assert np.array_equal(got[:, 0, rows], all_bad[:, 0, rows]), x


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention__of_a_row_of_tiny_numbers_does_not_depend_on_other_rows(dtype: str) -> None:
    """Each is a piece, but the products of their rests are not."""
    q, k, v = drawn(1, 1, 64, 32), drawn(1, 1, 300, 32), drawn(1, 1, 300, 32, seed=1)
    tiny = q * np.float32(2.0**-70)
    alone = bits(attend(tiny, k, v, dtype))
    q[:, :, 3::5] = tiny[:, :, 3::5]
    assert np.array_equal(bits(attend(q, k, v, dtype))[:, :, 3::5], alone[:, :, 3::5])


def masks(kind: str, lq: int, lk: int) -> tuple[Any, np.ndarray]:
    """A mask, and which keys each row sees."""
    rng = np.random.default_rng(lq)
    sees = np.tri(lq, lk, lk - lq, dtype=bool)
    if "random" in kind:
        sees = rng.random((lq, lk)) < 0.5
    if "padded" in kind:
        sees[:, : lk // 2], sees[:, -1] = False, True
    if kind == "causal":
        return "causal", sees
    if "add" in kind:
        return np.where(sees, rng.standard_normal((lq, lk)), -np.inf).astype(np.float32), sees
    return sees, sees


KINDS = ["causal", "keep", "keep random", "keep padded", "add", "add random", "add padded"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(3, 700), (1, 2100), (40, 333), (600, 600)], ids=str)
def test_attention__dropped_keys_give_nothing_whatever_they_hold(size: tuple[int, int], kind: str, dtype: str) -> None:
    """Rows that see a key of no numbers get none; all others what they get where it is 0."""
    lq, lk = size
    q, k, v = drawn(1, 2, lq, 40), drawn(1, 2, lk, 40), drawn(1, 2, lk, 37, seed=1)
    mask, sees = masks(kind, lq, lk)
    for x in (np.nan, np.inf, -np.inf):
        for where in "kv":
            for key in (0, lk // 3, lk - 2):
                clean, odd = (k if where == "k" else v).copy(), (k if where == "k" else v).copy()
                clean[0, 1, key, 5], odd[0, 1, key, 5] = 0, x
                pairs = ((clean, v), (odd, v)) if where == "k" else ((k, clean), (k, odd))
                want, got = (wide(attend(q, *p, dtype, mask)) for p in pairs)
                blind = ~sees[:, key]
                assert np.array_equal(got[:, 0], want[:, 0])
                np.testing.assert_allclose(got[:, 1, blind], want[:, 1, blind], rtol=2e-2 if dtype == "bfloat16" else 2e-3, atol=4e-3)
                if where == "v":
                    rest = np.delete(got[0, 1], 5, 1), np.delete(want[0, 1], 5, 1)
                    np.testing.assert_allclose(*rest, rtol=2e-2 if dtype == "bfloat16" else 2e-3, atol=4e-3)
                    assert not np.isfinite(got[0, 1, sees[:, key], 5]).any()
                    if not np.isnan(x):
                        assert (got[0, 1, sees[:, key], 5] == x).all()
                elif np.isnan(x):
                    assert np.isnan(got[0, 1, sees[:, key]]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["keep", "keep random", "add padded"])
def test_attention__of_some_rows_alone_has_the_same_bits(kind: str, dtype: str) -> None:
    """Where blocks end shows nowhere, nor do odd values of keys that are dropped."""
    q, k, v = drawn(1, 1, 600, 40), drawn(1, 1, 600, 40), drawn(1, 1, 600, 20, seed=1)
    mask, sees = masks(kind, 600, 600)
    v[0, 0, 500, 3] = np.nan
    v[0, 0, 590] = np.inf
    k[0, 0, 595, 1] = np.nan
    q[0, 0, 100, 2] = np.inf
    whole = bits(attend(q, k, v, dtype, mask))
    for rows in (slice(0, 37), slice(90, 137), slice(255, 520), slice(580, 600)):
        assert np.array_equal(bits(attend(q[:, :, rows], k, v, dtype, mask[rows])), whole[:, :, rows]), rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lq", [4, 50])
def test_attention__rows_that_keep_nothing_take_the_mean_of_all_values(lq: int, dtype: str) -> None:
    """Of those that are no numbers too; rows that keep a later key take nothing of the first ones."""
    q, k, v = drawn(1, 1, lq, 32), drawn(1, 1, 700, 32), drawn(1, 1, 700, 32, seed=1)
    keep = np.zeros((lq, 700), bool)
    keep[1:, 650:] = True
    v[0, 0, 10, 3] = np.nan
    v[0, 0, 20, 4] = np.inf
    got = wide(attend(q, k, v, dtype, keep))[0, 0]
    assert np.isnan(got[0, 3]) and got[0, 4] == np.inf
    assert np.isfinite(np.delete(got[0], [3, 4])).all()
    v[0, 0, 10, 3] = v[0, 0, 20, 4] = 0
    want = wide(attend(q, k, v, dtype, keep))[0, 0]
    np.testing.assert_allclose(got[1:], want[1:], rtol=2e-2 if dtype == "bfloat16" else 2e-3, atol=4e-3)
    np.testing.assert_allclose(np.delete(got, [3, 4], 1), np.delete(want, [3, 4], 1), rtol=2e-2, atol=4e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["keep", "causal", "add"])
def test_gradients__know_nothing_of_dropped_pairs(kind: str, dtype: str) -> None:
    """Of a key that no row sees, and of a row that sees some keys only: NaN stays where it is seen."""
    lq, lk = 300, 400
    t = getattr(mx, dtype)
    mask, sees = masks(kind, lq, lk)
    if kind != "causal":
        mask[:, 350] = -np.inf if kind == "add" else False
        sees[:, 350] = False
    x = [drawn(1, 1, n, 32, seed=i) for i, n in enumerate((lq, lk, lk, lq))]

    def grads(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
        m = mask if isinstance(mask, str) else mx.array(mask)
        at = [mx.array(a).astype(t) for a in (q, k, v, x[3])]
        f = lambda *a: mx.fast.scaled_dot_product_attention(*a, scale=0.2, mask=m)  # noqa: E731
        return [wide(y)[0, 0] for y in mx.vjp(f, at[:3], [at[3]])[1]]

    within = {"rtol": 2e-2 if dtype == "bfloat16" else 2e-3, "atol": 2e-2 if dtype == "bfloat16" else 4e-3}
    for value in (np.nan, np.inf):
        for place in (1, 2):
            key = lk - 3 if kind == "causal" else 350
            odd, clean = ([a.copy() for a in x[:3]] for _ in range(2))
            odd[place][0, 0, key, 4], clean[place][0, 0, key, 4] = value, 0
            blind = ~sees[:, key]
            for i, (got, want) in enumerate(zip(grads(*odd), grads(*clean), strict=True)):
                if i == 0:
                    np.testing.assert_allclose(got[blind], want[blind], **within)
                    assert blind.all() or np.isnan(got[~blind]).any()
                elif kind != "causal":
                    np.testing.assert_allclose(got, want, **within)
    odd = [a.copy() for a in x[:3]]
    odd[0][0, 0, 100, 4] = np.nan
    clean = grads(*x[:3])
    dq, dk, _ = grads(*odd)
    assert np.isnan(dq[100]).all()
    np.testing.assert_allclose(np.delete(dq, 100, 0), np.delete(clean[0], 100, 0), **within)
    np.testing.assert_allclose(dk[~sees[100]], clean[1][~sees[100]], **within)
    assert np.isnan(dk[sees[100]]).all()
