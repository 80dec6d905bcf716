# SPDX-License-Identifier: Apache-2.0
"""The Python array API standard, 2024.12: names, parameters, values.

tests/golden/array_api.tsv has the standard's names and parameters.  Each
function is called as the standard says, keywords and all, and its values are
held against NumPy's, which conforms too.  docs/array_api.md lists the
exceptions; those that can be seen are tests at the end.
"""

import inspect
import math
import pickle
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

TABLE = [line.split("\t") for line in (Path(__file__).parents[1] / "golden/array_api.tsv").read_text().splitlines()]
STANDARD = {name: parameters for name, *parameters in TABLE}
# The standard's names of parameters that have another name here, and keywords
# that all functions take beside those in their signatures.
ALIASES = {"fill_value", "correction", "min", "max", "device"}

X = np.array([[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]], np.float32)
P = np.abs(X) + 0.25
I = np.array([[5, 2, 7], [1, 0, 3]], np.int32)  # noqa: E741
B = X > 0
N = {"device": None}

# name: (arguments, keywords); more than one as a list
CALLS = {
    "arange": [((5,), N), ((1, 7, 2), {"dtype": "int32", **N})],
    "argmax": ((X,), {"axis": 1, "keepdims": True}), "argmin": ((X,), {"axis": None}),
    "argsort": [((I,), {"axis": 0}), ((I % 3,), {"axis": -1, "descending": False, "stable": True})],
    "asarray": (([1, 2],), {"dtype": "int32", "copy": None, **N}),
    "astype": ((I, "float32"), {"copy": False, **N}),
    "broadcast_arrays": ((X, X[0]), {}), "broadcast_shapes": (((2, 1), (3,)), {}), "broadcast_to": ((X[0],), {"shape": (4, 3)}),
    "can_cast": (("int8", "int16"), {}), "clip": [((X,), {"min": -1, "max": 1}), ((I, 1, 5), {})],
    "concat": [(([X, X],), {"axis": 1}), (([X, X],), {"axis": None})],
    "count_nonzero": ((I,), {"axis": 1, "keepdims": True}),
    "cumulative_prod": ((P[0],), {"include_initial": True}),
    "cumulative_sum": [((I,), {"axis": 1, "dtype": "int64", "include_initial": True}), ((X,), {"axis": 0})],
    "diff": ((I,), {"axis": 0, "n": 1, "prepend": I[:1], "append": I[1:]}),
    "empty": (((0, 2),), {"dtype": "int8", **N}), "empty_like": ((X[:0],), {"dtype": None, **N}),
    "expand_dims": ((X,), {"axis": 1}), "eye": ((2, 3), {"k": 1, "dtype": "int8", **N}),
    "flip": ((X,), {"axis": (0, 1)}), "full": (((2,),), {"fill_value": 3, "dtype": "int8", **N}),
    "full_like": ((X,), {"fill_value": 2, "dtype": None, **N}),
    "isdtype": (("int8",), {"kind": ("signed integer", "bool")}), "isin": ((I, I[0]), {"invert": True}),
    "linspace": ((0, 1), {"num": 5, "dtype": "float32", "endpoint": False, **N}),
    "matmul": ((X, X.T), {}), "matrix_transpose": ((X,), {}), "meshgrid": ((X[0], X[1]), {"indexing": "ij"}),
    "moveaxis": ((X, (0, 1), (1, 0)), {}), "nextafter": ((X, P), {}), "nonzero": ((B,), {}),
    "ones": (((2, 2),), {"dtype": None, **N}), "ones_like": ((X,), {"dtype": "int8", **N}),
    "permute_dims": ((X,), {"axes": (1, 0)}), "pow": ((P, X), {}),
    "repeat": [((X, 2), {"axis": 1}), ((X, np.array([2, 1])), {"axis": 0})],
    "reshape": ((X,), {"shape": (3, 2), "copy": None}), "result_type": (("int8", "int16"), {}),
    "roll": ((X,), {"shift": (1, 2), "axis": (0, 1)}),
    "searchsorted": ((np.array([3, 1, 2]), np.array([2, 3])), {"side": "right", "sorter": np.array([1, 2, 0])}),
    "sort": ((I,), {"axis": 0, "descending": False, "stable": True}), "squeeze": ((X[:1],), {"axis": 0}),
    "stack": (([X, X],), {"axis": 1}), "std": ((X,), {"axis": 1, "correction": 1, "keepdims": True}),
    "sum": [((I,), {"axis": 1, "dtype": "float32", "keepdims": True}), ((X,), {"axis": (0, 1)})],
    "prod": ((P,), {"axis": 0, "dtype": None, "keepdims": True}), "var": ((X,), {"axis": (0, 1), "correction": 0}),
    "take": ((X, np.array([1, 0])), {"axis": 0}), "take_along_axis": ((X, np.array([[1], [0]])), {"axis": 1}),
    "tensordot": [((X, X.T), {"axes": 1}), ((X, X), {"axes": ((0, 1), (0, 1))})], "tile": ((X, (2, 1)), {}),
    "tril": ((X,), {"k": -1}), "triu": ((X,), {"k": 1}), "unstack": ((X,), {"axis": 1}), "vecdot": ((X, X), {"axis": 0}),
    "where": ((B, X, I), {}), "zeros": (((2,),), {"dtype": "float32", **N}), "zeros_like": ((X,), {"dtype": None, **N}),
    "bitwise_left_shift": ((I, I % 3), {}), "bitwise_right_shift": ((I, I % 3), {}),
    "logical_and": ((B, ~B), {}), "logical_or": ((B, ~B), {}), "logical_xor": ((B, ~B), {}), "logical_not": ((B,), {}),
    "acosh": ((P + 1,), {}), "acos": ((X / 4,), {}), "asin": ((X / 4,), {}), "atanh": ((X / 4,), {}),
    "log": ((P,), {}), "log10": ((P,), {}), "log1p": ((P,), {}), "log2": ((P,), {}), "sqrt": ((P,), {}),
    "real": ((X + 1j,), {}), "imag": ((X + 1j,), {}), "conj": ((X + 1j,), {}),
    "unique_all": ((I,), {}), "unique_counts": ((I % 3,), {}), "unique_inverse": ((I % 3,), {}), "unique_values": ((I % 3,), {}),
}  # fmt: skip
for reduction in ("all", "any", "max", "min", "mean"):
    CALLS[reduction] = ((X,), {"axis": 1, "keepdims": True})
for integers in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    CALLS[integers] = ((I, I + 1), {})
CALLS["bitwise_invert"] = ((I,), {})

S = (X @ X.T + np.eye(2)).astype(np.float32)
Z = X + 1j * P
WHOLE = np.arange(12, dtype=np.float32).reshape(2, 3, 2) % 5
CALLS |= {
    "linalg.cholesky": ((S,), {"upper": True}), "linalg.cross": ((X, P), {"axis": -1}), "linalg.det": ((S,), {}),
    "linalg.diagonal": ((WHOLE,), {"offset": -1}), "linalg.inv": ((S,), {}), "linalg.matmul": ((X, X.T), {}),
    "linalg.eigvalsh": ((S,), {}), "linalg.matrix_transpose": ((WHOLE,), {}), "linalg.outer": ((X[0], X[1]), {}),
    "linalg.matrix_norm": [((WHOLE,), {}), ((WHOLE,), {"keepdims": True, "ord": "nuc"}), ((WHOLE,), {"ord": -1})],
    "linalg.matrix_power": [((S, n), {}) for n in (-2, 0, 1, 7)],
    "linalg.matrix_rank": [((WHOLE,), {}), ((WHOLE,), {"rtol": 0.4}), ((WHOLE,), {"rtol": np.array([0.9, 0.1], np.float32)})],
    "linalg.pinv": [((X,), {}), ((X,), {"rtol": 0.8})], "linalg.solve": ((S, X), {}), "linalg.slogdet": ((S,), {}),
    "linalg.qr": ((X.T,), {"mode": "reduced"}), "linalg.svdvals": ((WHOLE,), {}),
    "linalg.tensordot": ((X, X.T), {"axes": 1}), "linalg.vecdot": ((Z, X), {"axis": 0}),
    "linalg.trace": [((WHOLE,), {"offset": 1}), ((I,), {"dtype": "float32"})],
    "linalg.vector_norm": [((WHOLE,), {"axis": (0, 2), "keepdims": True, "ord": 3}), ((Z,), {"ord": float("inf")}), ((X,), {})],
    "fft.fftfreq": ((5,), {"d": 0.5, **N}), "fft.rfftfreq": ((6,), {"d": 0.5, **N}),
    "fft.fftshift": ((X,), {"axes": (1,)}), "fft.ifftshift": ((X,), {"axes": (1,)}),
}  # fmt: skip
for transform in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    CALLS[f"fft.{transform}"] = [((X,), {}), ((X,), {"n": 4, "axis": 0, "norm": "ortho"}), ((X,), {"norm": "forward"})]
for transform in ("fftn", "ifftn", "rfftn", "irfftn"):
    CALLS[f"fft.{transform}"] = ((X,), {"s": (2, 4), "axes": (0, 1), "norm": "backward"})
# Tested by hand: protocols, factors that are not unique.
BY_HAND = {"__array_namespace_info__", "finfo", "iinfo", "from_dlpack", "linalg.eigh", "linalg.svd"}


def calls_of(name):
    """Those above; else each positional parameter gets numbers."""
    if name in CALLS:
        found = CALLS[name]
        return found if isinstance(found, list) else [found]
    return [((X, P)[: len(STANDARD[name])], {})]


def converted(value, xp):
    """Arrays and names of dtypes as this namespace has them."""
    if isinstance(value, np.ndarray):
        return mx.array(value) if xp is mx else value
    if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
        return [converted(v, xp) for v in value]
    if isinstance(value, str) and value in ("int8", "int16", "int32", "int64", "float32"):
        return getattr(xp, value) if xp is mx else np.dtype(value)
    return value


def reached(xp, name):
    for part in name.split("."):
        xp = getattr(xp, part, None)
    return xp


def called(xp, name, args, kw):
    kw = {k: converted(v, xp) for k, v in kw.items()}
    if xp is np and name in ("sort", "argsort"):
        kw.pop("descending", None)
    if xp is np and name in ("var", "std") and "correction" in kw:
        kw["ddof"] = kw.pop("correction")
    if xp is np and name.startswith("fft.") and "freq" in name:
        kw.pop("device")
    return reached(xp, name)(*[converted(a, xp) for a in args], **kw)


def leaves(x):
    return [y for z in x for y in leaves(z)] if isinstance(x, (tuple, list)) else [x]


FUNCTIONS = [n for n in STANDARD if n[:6] != "array." and callable(reached(np, n)) and not isinstance(reached(np, n), type)]


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in BY_HAND and n != "result_type"])
def test_functions__take_the_standards_arguments(name):
    for args, kw in calls_of(name):
        used = {p.strip("=/*") for p in STANDARD[name] if p.endswith("=")}
        if name in CALLS and not isinstance(CALLS[name], list):
            assert used - set(kw) - {"dtype", "keepdims", "axis", "include_initial"} == set()
        got, want = leaves(called(mx, name, args, kw)), leaves(called(np, name, args, kw))
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            g = np.array(g)
            assert g.shape == np.shape(w)
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)


def test_names__all_are_here():
    assert {name for name in STANDARD if reached(mx, name) is None} == {"newaxis"}


@pytest.mark.parametrize("name", [n for n in STANDARD if STANDARD[n] and not n.startswith("array.__")])
def test_signatures__have_the_standards_parameters(name):
    value = reached(mx, name)
    have = inspect.signature(value).parameters.values()
    names = {p.name for p in have} | ALIASES
    if any(p.kind is p.VAR_POSITIONAL for p in have):
        positional = math.inf
    else:
        positional = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name not in ("self", "stream") for p in have)
    own = name.startswith("array.")
    want = STANDARD[name]
    assert own or positional >= sum(not p.endswith("=") and not p.startswith("*") for p in want)
    assert {p.rstrip("=") for p in want if p[-1] != "/" and p[0] != "*"} - names == set()


def test_array__has_the_standards_protocols():
    x = mx.array([1, 2])
    assert x.__array_namespace__() is mx
    assert x.__array_namespace__(api_version="2024.12") is mx
    with pytest.raises(ValueError, match="2030.12"):
        x.__array_namespace__(api_version="2030.12")
    assert x.device == mx.default_device()
    assert x.to_device(x.device) is x
    assert x.to_device(x.device, stream=None) is x
    assert x.__dlpack_device__() == (1, 0)
    capsule = x.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=True)
    assert "dltensor_versioned" in repr(capsule)
    assert mx.from_dlpack(np.ones(2, np.float32), device=None, copy=None).tolist() == [1, 1]
    assert mx.__array_api_version__ == "2024.12"


def test_inspection__answers_every_question():
    info = mx.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}
    assert info.default_device() in info.devices()
    defaults = info.default_dtypes(device=info.default_device())
    assert defaults == {
        "real floating": mx.float32, "complex floating": mx.complex64, "integral": mx.int32, "indexing": mx.int32}  # fmt: skip
    assert set(info.dtypes(kind="signed integer")) == {"int8", "int16", "int32", "int64"}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    assert info.dtypes()["float64"] is mx.float64


def test_dtypes__functions_about_them():
    assert mx.bool is mx.bool_
    assert "bool" not in mx.__all__ and "bool_" in mx.__all__
    assert mx.isdtype(mx.float64, "real floating")
    assert not mx.isdtype(mx.bool, "numeric")
    assert mx.result_type(mx.int8, mx.array([1], dtype=mx.int16)) is mx.int16
    assert mx.result_type(mx.int8, 3) is mx.int8
    assert mx.result_type(2.0, mx.int8, 1) is mx.float32
    with pytest.raises(ValueError, match="array or a Dtype"):
        mx.result_type(1, 2)
    assert mx.can_cast(mx.array([1], dtype=mx.int8), mx.float32)
    f, i = mx.finfo(mx.array(1.0)), mx.iinfo(mx.array(1, dtype=mx.uint8))
    assert (f.bits, f.eps, f.max, f.min, f.smallest_normal, f.dtype) == (
        32, 2.0**-23, -f.min, -f.max, 2.0**-126, mx.float32)  # fmt: skip
    assert (i.bits, i.max, i.min, i.dtype) == (8, 255, 0, mx.uint8)


def test_sorting__descending_is_stable():
    x = mx.array([2, 1, 2, 3, 1])
    assert mx.sort(x, descending=True).tolist() == [3, 2, 2, 1, 1]
    assert mx.argsort(x, descending=True, stable=True).tolist() == [3, 0, 2, 1, 4]
    assert mx.argsort(mx.stack([x, -x]), axis=0, descending=True).tolist() == [[0] * 5, [1] * 5]
    assert mx.sort(mx.zeros((0,)), descending=True).shape == (0,)
    assert mx.argsort(mx.zeros((0,)), descending=True).shape == (0,)
    assert mx.grad(lambda a: mx.sort(a, descending=True)[0])(mx.array([1.0, 3.0])).tolist() == [0, 1]


def test_unique__results_have_names():
    r = mx.unique_all(mx.array([3, 1, 3]))
    assert [v.tolist() for v in (r.values, r.indices, r.inverse_indices, r.counts)] == [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    assert {v.dtype for v in r[1:]} == {mx.int32}
    assert mx.unique_counts(mx.array([2, 2])).counts.tolist() == [2]
    assert mx.unique_inverse(mx.array([[2], [1]])).inverse_indices.tolist() == [[1], [0]]


FIELDS = {"eigh": ("eigenvalues", "eigenvectors"), "eig": ("eigenvalues", "eigenvectors"), "svd": ("U", "S", "Vh"),
          "qr": ("Q", "R"), "slogdet": ("sign", "logabsdet")}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_linalg__results_have_names_through_transforms(name):
    f = getattr(mx.linalg, name)
    x = mx.array(S)
    for r in (f(x), mx.compile(f)(x), mx.vmap(f)(mx.stack([x, x])), pickle.loads(pickle.dumps(f(x)))):
        assert isinstance(r, tuple)
        assert r._fields == FIELDS[name]
        assert all(getattr(r, n) is v for n, v in zip(FIELDS[name], r, strict=True))


def test_svd__factors_whole_and_thin():
    x = mx.array(WHOLE)
    u, s, vh = mx.linalg.svd(x, full_matrices=False)
    assert (u.shape, s.shape, vh.shape) == ((2, 3, 2), (2, 2), (2, 2, 2))
    np.testing.assert_allclose(np.array((u * s[:, None]) @ vh), WHOLE, atol=1e-5)
    assert mx.linalg.svd(x).U.shape == (2, 3, 3)
    w, v = mx.linalg.eigh(mx.array(S))
    np.testing.assert_allclose(np.array(v * w @ v.T), S, rtol=1e-5)


@pytest.mark.parametrize("a", [X.T, X, WHOLE, np.zeros((4, 2), np.float32), np.zeros((3, 0), np.float32), np.eye(20, 3)])
def test_qr__complete_is_orthogonal_and_begins_as_the_reduced(a):
    q, r = map(np.array, mx.linalg.qr(mx.array(a.astype(np.float32)), mode="complete"))
    less, top = map(np.array, mx.linalg.qr(mx.array(a.astype(np.float32))))
    m, k = q.shape[-1], less.shape[-1]
    assert q.shape[-2:] == (m, m)
    assert r.shape == a.shape
    np.testing.assert_allclose(q @ np.swapaxes(q, -1, -2), np.broadcast_to(np.eye(m), q.shape), atol=1e-5)
    np.testing.assert_allclose(q @ r, a, atol=1e-5)
    np.testing.assert_allclose(q[..., :k], less, atol=1e-5)
    np.testing.assert_allclose(r[..., :k, :], top, atol=1e-5)
    assert not np.any(r[..., k:, :])


def test_pinv__has_a_gradient_where_singular_values_are_equal():
    g = mx.grad(lambda a: mx.linalg.pinv(a, rtol=1e-3)[0, 0])(mx.diag(mx.array([2.0, 2.0, 1e-6])))
    assert g.tolist() == [[-0.25, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_frequencies__have_the_dtype_asked_for():
    f = mx.fft.fftfreq(7, d=0.1, dtype=mx.float64, device=mx.cpu)
    assert f.dtype is mx.float64
    assert f.tolist() == np.fft.fftfreq(7, 0.1).tolist()
    assert mx.fft.rfftfreq(7, dtype=mx.float16).dtype is mx.float16


def test_matrix_power__takes_every_exponent():
    x = mx.array([[0.0, 1.0], [1.0, 0.0]])
    for n in (2**63 - 1, -(2**63) + 1):
        assert mx.linalg.matrix_power(x, n).tolist() == x.tolist()
    assert mx.linalg.matrix_power(x, -(2**63)).tolist() == [[1, 0], [0, 1]]
    assert mx.grad(lambda a: mx.linalg.matrix_power(a, 0).sum())(x).tolist() == [[0, 0], [0, 0]]
    z = mx.array(Z[:, :2].astype(np.complex64))
    np.testing.assert_allclose(
        np.array(mx.linalg.matrix_power(z, -2)), np.linalg.matrix_power(Z[:, :2], -2), rtol=1e-4)  # fmt: skip


def test_ranks__of_nothing_and_zeros_are_0():
    assert mx.linalg.matrix_rank(mx.zeros((2, 0, 3))).tolist() == [0, 0]
    assert mx.linalg.matrix_rank(mx.zeros((3, 3))).item() == 0
    assert mx.linalg.matrix_rank(mx.array(S)).dtype is mx.int32


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: mx.linalg.matrix_power(x, 2), ValueError),
        (lambda x: mx.linalg.matrix_power(mx.zeros((2, 3)), 2), ValueError),
        (lambda x: mx.linalg.matrix_power(mx.zeros((2, 2), mx.int32), 2), ValueError),
        (lambda x: mx.linalg.matrix_power(mx.eye(2), 1.5), TypeError),
        (lambda x: mx.linalg.matrix_power(mx.eye(2), 2**64), OverflowError),
        (lambda x: mx.linalg.matrix_rank(x), ValueError),
        (lambda x: mx.linalg.matrix_rank(mx.eye(2), rtol=mx.zeros((2,))), ValueError),
        (lambda x: mx.linalg.pinv(mx.eye(2), rtol="1"), ValueError),
        (lambda x: mx.linalg.pinv(mx.zeros((2, 2, 2)), rtol=mx.zeros((3,))), ValueError),
        (lambda x: mx.linalg.qr(mx.eye(2), mode="raw"), ValueError),
        (lambda x: mx.linalg.qr(mx.eye(2), mode=None), TypeError),
        (lambda x: mx.linalg.svdvals(x), ValueError),
        (lambda x: mx.linalg.svd(mx.eye(2), full_matrices=1), TypeError),
        (lambda x: mx.linalg.diagonal(x), ValueError),
        (lambda x: mx.linalg.trace(x), ValueError),
        (lambda x: mx.linalg.trace(mx.eye(2), dtype="int8"), TypeError),
        (lambda x: mx.linalg.matrix_norm(x), IndexError),
        (lambda x: mx.linalg.matrix_norm(mx.eye(2), ord=3), ValueError),
        (lambda x: mx.linalg.matrix_norm(mx.eye(2), ord="max"), ValueError),
        (lambda x: mx.linalg.matrix_norm(mx.eye(2), ord=[1]), TypeError),
        (lambda x: mx.linalg.vector_norm(x, axis=1), IndexError),
        (lambda x: mx.linalg.vector_norm(x, axis=(0, 0)), ValueError),
        (lambda x: mx.linalg.vector_norm(x, ord=math.nan), ValueError),
        (lambda x: mx.linalg.vector_norm(x, ord="fro"), TypeError),
        (lambda x: mx.linalg.vector_norm(mx.zeros((0,)), ord=math.inf), ValueError),
        (lambda x: mx.fft.hfft(x, n=0), ValueError),
        (lambda x: mx.fft.hfft(x, norm="both"), ValueError),
        (lambda x: mx.fft.ihfft(x.astype(mx.complex64)), ValueError),
        (lambda x: mx.fft.ihfft(x, axis=1), IndexError),
        (lambda x: mx.fft.fftfreq(3, dtype=mx.int32), ValueError),
        (lambda x: mx.fft.rfftfreq(3, dtype="float32"), TypeError),
        (lambda x: mx.std(x, correction="1"), TypeError),
        (lambda x: mx.sum(x, dtype="int8"), TypeError),
        (lambda x: mx.sort(x, descending=1), TypeError),
        (lambda x: mx.sort(x, ascending=True), TypeError),
        (lambda x: mx.sum(x, copy=True), TypeError),
        (lambda x: mx.reshape(x, (3,), copy=3), TypeError),
        (lambda x: mx.diff(x, prepend=1), TypeError),
        (lambda x: mx.diff(x, prepend=mx.zeros((1, 1))), ValueError),
        (lambda x: mx.searchsorted(x, x, sorter=[0]), TypeError),
        (lambda x: mx.zeros((2,), device="cpu"), TypeError),
        (lambda x: mx.full((2,), 1, fill_value=2), TypeError),
        (lambda x: mx.argsort(x, axis=3, descending=True), IndexError),
        (lambda x: mx.moveaxis(x, (0, 0), (0, 0)), ValueError),
        (lambda x: mx.moveaxis(x, (0,), (0, 1)), ValueError),
        (lambda x: mx.moveaxis(x, 4, 0), IndexError),
        (lambda x: x.to_device("gpu"), TypeError),
        (lambda x: x.__array_namespace__(api_version=3), ValueError),
    ],
)
def test_bad_input__is_refused(call, kind):
    with pytest.raises(kind) as e:
        call(mx.array([1, 2, 3]))
    assert str(e.value)


# ---- the exceptions of docs/array_api.md ---------------------------------------


def test_exceptions__places_are_uint32():
    x = mx.array([2, 1])
    assert {f.dtype for f in (mx.argmax(x), mx.argmin(x), mx.argsort(x), mx.searchsorted(x, x))} == {mx.uint32}


def test_exceptions__small_integers_add_up_in_their_own_or_32_bits():
    x = mx.array([100, 100], dtype=mx.int8)
    assert mx.sum(x).dtype is mx.int32
    assert mx.cumulative_sum(x).dtype is mx.int8


def test_exceptions__matrix_products_need_inexact_numbers():
    x = mx.array([1, 2])
    for f in (mx.matmul, lambda a, b: mx.tensordot(a, b, axes=1)):
        with pytest.raises(ValueError, match="floating"):
            f(x, x)


def test_exceptions__float64_of_others_arrives_as_float32():
    assert mx.asarray(np.ones(1)).dtype is mx.float32
    assert mx.asarray(np.ones(1), dtype=mx.float64).dtype is mx.float64


def test_exceptions__clip_needs_a_bound():
    with pytest.raises(ValueError, match="at least one"):
        mx.clip(mx.array([1]))


def test_exceptions__factors_of_complex_matrices():
    z = mx.eye(2).astype(mx.complex64)
    for f in (mx.linalg.cholesky, mx.linalg.det, mx.linalg.inv, mx.linalg.pinv, mx.linalg.qr, mx.linalg.slogdet):
        with pytest.raises(ValueError, match="complex"):
            f(z)
    for f in (mx.linalg.matrix_power, mx.linalg.svdvals):
        with pytest.raises(ValueError, match="float32"):
            f(*([mx.ones((2, 2), mx.int32)] + [2] * (f is mx.linalg.matrix_power)))


def test_variance__divides_by_fractions_too():
    x = np.array([1.0, 2.0, 5.0], np.float32)
    for c in (0.5, 1.0, 3.0, 4.5):
        want = np.sum((x - x.mean()) ** 2) / max(3 - c, 0) if c < 3 else math.inf
        assert mx.var(mx.array(x), correction=c).item() == pytest.approx(want)
        assert mx.std(mx.array(x), ddof=c).item() == pytest.approx(math.sqrt(want))


def test_exceptions__kinds_mix_in_promotion():
    assert (mx.array([1]) + mx.array([0.5])).dtype is mx.float32
    assert (mx.array([True]) + mx.array([1])).dtype is mx.int32
