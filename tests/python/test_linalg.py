# SPDX-License-Identifier: Apache-2.0
"""Linear algebra: what the sweep does not ask.

Factors are held to what defines them (products, orthogonality, triangles),
with LAPACK and, where MARRAM_BLAS=none, with the plain code.
"""

import math
import os
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest

la = mx.linalg
SIZES = [1, 2, 3, 4, 5, 16, 17, 33, 70]
REAL = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]


def drawn(*shape, dtype="float32", seed=0):
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    if dtype in COMPLEX:
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def given(x):
    return mx.array(x, dtype=getattr(mx, str(x.dtype)))


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def tolerance(dtype, n):
    return (1e-5 if dtype in ("float32", "complex64") else 1e-13) * (n + 5)


def near(a, b, tol):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0) <= tol * max(1.0, np.abs(b).max(initial=0))


# ---- factors ---------------------------------------------------------------------
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
def test_qr__is_orthonormal_times_triangular_with_lapacks_signs(n, dtype):
    for m in (n, n + 3, max(1, n - 2)):
        a = drawn(2, m, n, dtype=dtype)
        q, r = map(np.array, la.qr(given(a)))
        k = min(m, n)
        near(q @ r, a, tolerance(dtype, n))
        near(adjoint(q) @ q, np.broadcast_to(np.eye(k), (2, k, k)), tolerance(dtype, n))
        assert np.array_equal(r, np.triu(r))
        near(r, np.linalg.qr(a.astype(np.float64))[1], 100 * tolerance(dtype, n))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
def test_lu__has_rows_of_a_where_p_says(n, dtype):
    for m in (n, n + 2, max(1, n - 1)):
        a = drawn(2, m, n, dtype=dtype)
        p, low, up = map(np.array, la.lu(given(a)))
        packed, pivots = map(np.array, la.lu_factor(given(a)))
        assert p.dtype == pivots.dtype == np.uint32
        assert np.abs(low).max() <= 1
        near(np.stack([low[i][p[i]] @ up[i] for i in range(2)]), a, tolerance(dtype, n))
        k = min(m, n)
        near(np.tril(packed[..., :k], -1) + np.eye(m, k), low, 0)
        near(np.triu(packed[..., :k, :]), up, 0)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
def test_systems__are_solved(n, dtype):
    a = drawn(2, n, n, dtype=dtype) + 3 * np.eye(n, dtype=dtype)
    b = drawn(2, n, 3, dtype=dtype)
    s = a @ adjoint(a) + np.eye(n, dtype=dtype)
    tol = 30 * tolerance(dtype, n)
    near(a @ np.array(la.solve(given(a), given(b))), b, tol)
    near(a @ np.array(la.inv(given(a))), np.broadcast_to(np.eye(n), a.shape), tol)
    near(a @ np.array(la.pinv(given(a))), np.broadcast_to(np.eye(n), a.shape), tol)
    low = np.array(la.cholesky(given(s)))
    near(low @ adjoint(low), s, tol)
    assert np.array_equal(low, np.tril(low))
    near(la.cholesky(given(s), upper=True), adjoint(low), tol)
    near(np.array(la.cholesky_inv(given(low))) @ s, np.broadcast_to(np.eye(n), s.shape), 10 * tol)
    near(low @ np.array(la.tri_inv(given(low))), np.broadcast_to(np.eye(n), s.shape), tol)
    sign, log = la.slogdet(given(a))
    want = np.linalg.slogdet(a.astype(np.float64))
    near(sign, want[0], 0)
    near(log, want[1], tol)


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
@pytest.mark.parametrize("n", SIZES)
def test_svd__is_unitary_times_descending(n, dtype):
    for m in (n, n + 3, max(1, n - 2)):
        a = drawn(2, m, n, dtype=dtype)
        u, s, vt = map(np.array, la.svd(given(a)))
        k = min(m, n)
        tol = tolerance(dtype, n)
        near((u[..., :k] * s[:, None]) @ vt[:, :k], a, tol)
        near(u @ adjoint(u), np.broadcast_to(np.eye(m), u.shape), tol)
        near(vt @ adjoint(vt), np.broadcast_to(np.eye(n), vt.shape), tol)
        assert s.dtype == a.real.dtype
        assert (np.diff(s) <= 0).all()
        near(la.svd(given(a), compute_uv=False), s, tol)


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
@pytest.mark.parametrize("n", SIZES)
def test_eigh__reads_one_triangle_and_ascends(n, dtype):
    a = drawn(2, n, n, dtype=dtype)
    s = a + adjoint(a)
    for uplo, keep in (("L", np.tril), ("U", np.triu)):
        half = keep(s) + drawn(n, n, dtype=dtype) * (1 - keep(np.ones((n, n), dtype=a.real.dtype)))
        w, v = map(np.array, la.eigh(given(half.astype(dtype)), uplo))
        tol = tolerance(dtype, n)
        near(v * w[:, None] @ adjoint(v), s, tol)
        near(adjoint(v) @ v, np.broadcast_to(np.eye(n), v.shape), tol)
        assert (np.diff(w) >= 0).all()
        near(la.eigvalsh(given(half.astype(dtype)), uplo), w, tol)


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
@pytest.mark.parametrize("n", SIZES)
def test_eig__has_vectors_of_length_1_and_pairs_in_order(n, dtype):
    a = drawn(2, n, n, dtype=dtype)
    w, v = map(np.array, la.eig(given(a)))
    assert w.dtype == v.dtype == np.result_type(a.dtype, np.complex64)
    near(a @ v, v * w[:, None], 3 * tolerance(dtype, n))
    near(np.linalg.norm(v, axis=1), np.ones((2, n)), tolerance(dtype, n))
    for row in w if dtype in REAL else ():
        at = 0
        while at < n:
            if row[at].imag != 0:
                assert row[at].imag > 0
                assert row[at + 1] == np.conj(row[at])
                at += 1
            at += 1
    got = np.array(la.eigvals(given(a)))
    for x, y in zip(got, w, strict=True):
        assert all(np.abs(x - z).min() <= 30 * tolerance(dtype, n) for z in y)


def test_factors__are_the_same_without_blas():
    """The plain code passes this file's tests of factors."""
    if os.environ.get("MARRAM_BLAS") == "none":
        pytest.skip("this is that run")
    made = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k",
         "qr__ or lu__ or systems__ or svd__is or eigh__reads or eig__has"],
        env={**os.environ, "MARRAM_BLAS": "none"}, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout[-3000:]


def test_factors__do_not_depend_on_threads():
    text = (
        "import marram.core as mx, numpy as np, hashlib;"
        "r = np.random.default_rng(0); a = mx.array(r.standard_normal((999, 4, 4)).astype('f'));"
        "s = a @ mx.swapaxes(a, 1, 2) + mx.eye(4); l = mx.linalg;"
        "out = [l.inv(a), l.solve(a, s), l.det(a), *l.qr(a), *l.svd(a), *l.eigh(s), l.cholesky(s), *l.eig(a)];"
        "print(hashlib.sha256(b''.join(np.array(x).tobytes() for x in out)).hexdigest())"
    )
    seen = {
        subprocess.run([sys.executable, "-c", text], env={**os.environ, "MARRAM_THREADS": n}, capture_output=True,
                       text=True, check=True).stdout
        for n in ("1", "2", "5")
    }  # fmt: skip
    assert len(seen) == 1


# ---- spectra that are not generic ---------------------------------------------------
@pytest.mark.parametrize("n", [3, 8, 20])
@pytest.mark.parametrize("dtype", REAL)
def test_svd__of_lower_rank_has_orthonormal_vectors(n, dtype):
    thin = drawn(n, 1, dtype=dtype)
    for a in (np.zeros((n, n), dtype), thin @ thin.T, np.eye(n, dtype=dtype), np.ones((n + 2, n), dtype)):
        u, s, vt = map(np.array, la.svd(given(a)))
        k = min(a.shape)
        near((u[:, :k] * s) @ vt[:k], a, tolerance(dtype, n))
        near(u @ u.T, np.eye(len(u)), tolerance(dtype, n))
        near(vt @ vt.T, np.eye(n), tolerance(dtype, n))
        near(la.pinv(given(a)), np.linalg.pinv(a.astype(np.float64), rcond=1e-6), tolerance(dtype, n))


@pytest.mark.parametrize("scale", [1e-35, 1e-18, 1e18, 1e35])
def test_small_matrices__of_extreme_size_keep_their_precision(scale):
    a = drawn(3, 4, 4) * np.float32(scale)
    s = np.array(la.svd(given(a), False))
    near(s / scale, np.linalg.svd(a.astype(np.float64) / scale)[1], 1e-5)
    h = a + adjoint(a)
    near(np.array(la.eigvalsh(given(h))) / scale, np.linalg.eigvalsh(h.astype(np.float64) / scale), 1e-5)
    q, r = map(np.array, la.qr(given(a)))
    near(q.astype(np.float64) @ (r.astype(np.float64) / scale), a / scale, 1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("n", [1, 4, 20])
def test_spectra__of_nan_or_infinity_are_nan(n, bad):
    a = drawn(2, n, n)
    a[0, -1, 0] = bad
    for f in (la.eigvalsh, la.eigvals, la.pinv, lambda x: la.svd(x, False), *(
        lambda x, f=f, k=k: f(x)[k] for f, k in ((la.eigh, 0), (la.eigh, 1), (la.eig, 0), (la.eig, 1), (la.svd, 0),
                                                 (la.svd, 1), (la.svd, 2)))
    ):  # fmt: skip
        y = np.array(f(given(a)))
        assert np.isnan(y[0]).all()
        assert np.isfinite(y[1]).all()
    for f in (la.qr, la.lu, la.slogdet):
        mx.eval(f(given(a)))
    assert not np.isfinite(np.array(la.det(given(a)))[0])


# ---- errors -------------------------------------------------------------------------
def test_cholesky__names_the_matrix_that_is_not_positive_definite():
    a = np.stack([np.eye(3)] * 6).reshape(2, 3, 3, 3).astype(np.float32)
    a[1, 0, 2, 2] = -1
    a[1, 2, 0, 0] = 0
    y = la.cholesky(given(a))
    with pytest.raises(ValueError, match=r"batch index \(1, 0\) is not positive definite"):
        mx.eval(y)
    with pytest.raises(ValueError, match="the matrix is not positive definite"):
        mx.eval(la.cholesky(given(-np.eye(20, dtype=np.float32))))
    with pytest.raises(ValueError, match="positive definite"):
        mx.eval(la.cholesky(mx.array([[math.nan]])))


def test_singular__matrices_are_named():
    a = np.stack([np.eye(2), np.ones((2, 2))]).astype(np.float32)
    for f in (la.inv, lambda x: la.solve(x, x)):
        with pytest.raises(ValueError, match=r"batch index \(1,\) is singular"):
            mx.eval(f(given(a)))
    a[1] = [[0, 1], [1, 1]]
    for f in (la.tri_inv, la.cholesky_inv, lambda x: la.solve_triangular(x, x)):
        with pytest.raises(ValueError, match=r"batch index \(1,\) is singular: it has a zero"):
            mx.eval(f(given(a)))
    with pytest.raises(ValueError, match="singular"):
        mx.eval(la.inv(mx.zeros((18, 18))))


@pytest.mark.parametrize("n", [-1, -2, -3, -(2**63)])
def test_matrix_power__of_a_singular_matrix_says_so(n):
    def power(x):
        return la.matrix_power(x, n)

    nothing = mx.array(np.full((3, 3), np.nan, np.float32))
    one, two = mx.ones((3, 3)), mx.ones((2, 3, 3))
    calls = [
        lambda: power(one),
        lambda: power(mx.zeros((18, 18))),
        lambda: power(one.astype(mx.complex64)),
        lambda: mx.compile(power)(one),
        lambda: mx.vmap(power)(two),
        lambda: mx.grad(lambda x: power(x).sum())(one),
        lambda: mx.jvp(power, [one], [one]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="singular"):
            mx.eval(call())
    assert np.isnan(np.array(power(nothing))).all()


FUNCTIONS = {
    "cholesky": la.cholesky, "cholesky_inv": la.cholesky_inv, "eig": la.eig, "eigh": la.eigh, "eigvals": la.eigvals,
    "eigvalsh": la.eigvalsh, "inv": la.inv, "lu": la.lu, "lu_factor": la.lu_factor, "pinv": la.pinv, "qr": la.qr,
    "solve": lambda a: la.solve(a, mx.zeros((3, 3))), "svd": la.svd, "tri_inv": la.tri_inv,
}  # fmt: skip
SQUARE = ["cholesky", "cholesky_inv", "eig", "eigh", "eigvals", "eigvalsh", "inv", "solve", "tri_inv"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_input__is_refused_with_a_reason(name):
    f = FUNCTIONS[name]
    for dtype in ("bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16"):
        with pytest.raises(ValueError, match="astype"):
            f(mx.ones((3, 3), dtype=getattr(mx, dtype)))
    if name not in ("eig", "eigh", "eigvals", "eigvalsh", "svd"):
        with pytest.raises(ValueError, match="complex64"):
            f(mx.ones((3, 3), dtype=mx.complex64))
    for shape in ((), (3,)):
        with pytest.raises(ValueError, match="last two axes|square"):
            f(mx.ones(shape))
    for shape in ((3, 4), (2, 3, 2)):
        if name in SQUARE:
            with pytest.raises(ValueError, match="square"):
                f(mx.ones(shape))
    with pytest.raises(TypeError):
        f("matrix")


I3, V3 = mx.eye(3), mx.ones((3,))
BAD = [
    (ValueError, "rows on the right", lambda: la.solve(I3, mx.ones((4,)))),
    (ValueError, "rows on the right", lambda: la.solve(I3, mx.ones((2, 4, 1)))),
    (ValueError, "rows on the right", lambda: la.solve(mx.ones((2, 3, 3)), mx.ones((4, 3, 1)))),
    (ValueError, "float32", lambda: la.solve(I3, mx.ones((3,), dtype=mx.int32))),
    (ValueError, "rows on the right", lambda: la.solve(I3, mx.array(1.0))),
    (ValueError, "square", lambda: la.solve_triangular(mx.ones((3, 2)), V3)),
    (ValueError, "real", lambda: la.solve_triangular(I3.astype(mx.complex64), V3)),
    (ValueError, "rows on the right", lambda: la.solve_triangular(I3, mx.ones((2,)))),
    (ValueError, "square", lambda: la.det(V3)),
    (ValueError, "square", lambda: la.slogdet(mx.ones((2, 3)))),
    (ValueError, "eigvals", lambda: la.det(I3.astype(mx.complex64))),
    (ValueError, "UPLO 'X'", lambda: la.eigh(I3, "X")),
    (ValueError, "UPLO ''", lambda: la.eigvalsh(I3, "")),
    (ValueError, "size 3 or 2", lambda: la.cross(mx.ones((4,)), V3)),
    (ValueError, "size 3 or 2", lambda: la.cross(V3, mx.ones((1,)))),
    (IndexError, "axis", lambda: la.cross(V3, V3, 1)),
    (IndexError, "axis", lambda: la.cross(V3, V3, -2)),
    (ValueError, "broadcast", lambda: la.cross(mx.ones((2, 3)), mx.ones((4, 3)))),
    (IndexError, "axis", lambda: la.norm(I3, axis=2)),
    (IndexError, "axis", lambda: la.norm(I3, axis=2**40)),
    (ValueError, "order 3", lambda: la.norm(I3, 3)),
    (ValueError, "order 1 over 3", lambda: la.norm(mx.ones((2, 2, 2)), 1)),
    (ValueError, "'abc'", lambda: la.norm(I3, "abc")),
    (ValueError, "'fro' over 1", lambda: la.norm(V3, "fro")),
    (ValueError, "twice", lambda: la.norm(I3, axis=(0, 0))),
    (TypeError, "ord", lambda: la.norm(I3, [1])),
    (TypeError, "ord", lambda: la.norm(I3, 1j)),
    (ValueError, "NaN", lambda: la.norm(I3, math.nan)),
    (ValueError, "size 6", lambda: mx.hadamard_transform(mx.ones((6,)))),
    (ValueError, "size 36", lambda: mx.hadamard_transform(mx.ones((36,)))),
    (ValueError, "size 0", lambda: mx.hadamard_transform(mx.ones((2, 0)))),
    (ValueError, "0-d", lambda: mx.hadamard_transform(mx.array(1.0))),
    (ValueError, "complex128", lambda: mx.hadamard_transform(mx.ones((4,), dtype=mx.complex128))),
    (ValueError, "float32", lambda: mx.random.multivariate_normal(V3, I3, dtype=mx.float64)),
    (ValueError, "float32", lambda: mx.random.multivariate_normal(V3.astype(mx.float64), I3)),
    (ValueError, "covariance", lambda: mx.random.multivariate_normal(V3, mx.eye(2))),
    (ValueError, "broadcast", lambda: mx.random.multivariate_normal(mx.ones((2, 3)), I3, (5,))),
    (ValueError, "negative", lambda: mx.random.multivariate_normal(V3, I3, (-1,))),
    (OverflowError, "many", lambda: mx.random.multivariate_normal(V3, I3, (2**62, 4))),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_argument__is_refused_with_a_reason(case):
    kind, text, call = BAD[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0)])
def test_empty__matrices_have_empty_factors(shape):
    a = mx.zeros(shape)
    n = shape[-1]
    for f in (la.inv, la.cholesky, la.tri_inv, la.pinv):
        assert f(a).shape == shape
        mx.eval(f(a))
    for f in (la.qr, la.svd, la.eigh, la.eig, la.lu, la.lu_factor):
        mx.eval(f(a))
    assert np.array_equal(la.det(a), np.ones(shape[:-2]))
    assert np.array_equal(la.slogdet(a)[1], np.zeros(shape[:-2]))
    assert la.eigvals(a).shape == (*shape[:-2], n)
    u, s, vt = la.svd(mx.zeros((3, 0)))
    assert (u.shape, s.shape, vt.shape) == ((3, 3), (0,), (0, 0))
    assert np.array_equal(np.array(u), np.eye(3))


# ---- derivatives --------------------------------------------------------------------
def test_det__of_a_singular_matrix_has_its_gradient():
    for n, rank in ((2, 1), (3, 2), (4, 2), (5, 4), (20, 19), (1, 0)):
        a = drawn(n, rank, dtype="float64") @ drawn(rank, n, dtype="float64", seed=1)
        g = np.array(mx.grad(la.det)(given(a)))
        minors = [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) * (-1) ** (i + j) for j in range(n)] for i in range(n)]
        near(g, minors, 1e-9)


def test_det__has_the_hessian_of_a_polynomial_at_any_matrix():
    for a in (np.eye(3), np.zeros((3, 3)), np.diag([1.0, 0, 0]), np.diag([2.0, 2, 1])):
        x = given(a)
        for i in range(3):
            for j in range(3):
                v = np.zeros((3, 3))
                v[i, j] = 1
                got = np.array(mx.jvp(mx.grad(la.det), [x], [given(v)])[1][0])
                # det is quadratic along two directions: a difference is exact
                h = 0.5
                want = (np.array(mx.grad(la.det)(given(a + h * v))) - np.array(mx.grad(la.det)(given(a - h * v)))) / (2 * h)
                near(got, want, 1e-12)


def test_norm__at_zero_has_gradient_zero():
    z = mx.zeros((3, 3))
    for kw in ({}, {"ord": "fro"}, {"axis": 0}, {"axis": 1, "ord": 3}, {"ord": 2, "axis": 0}, {"axis": 1, "ord": 1}):
        g = mx.grad(lambda x, kw=kw: mx.sum(la.norm(x, **kw)))(z)
        assert np.array_equal(g, np.zeros((3, 3))), kw
    hess = mx.grad(lambda x: mx.sum(mx.grad(lambda y: mx.sum(la.norm(y, axis=0)))(x)))(z)
    assert np.isfinite(np.array(hess)).all()


def test_equal_values__have_gradients_and_their_vectors_none():
    a = given(np.eye(3))
    c = given(drawn(3, 3, dtype="float64"))
    near(mx.grad(lambda x: mx.sum(la.pinv(x) * c))(a), -np.array(c), 1e-12)
    near(mx.grad(lambda x: la.norm(x, "nuc"))(a), np.eye(3), 1e-12)
    for f in (la.eigvalsh, la.eigvals, lambda x: la.eigh(x)[0], lambda x: la.svd(x)[1], lambda x: la.eig(x)[0]):
        near(mx.grad(lambda x, f=f: mx.sum(mx.real(f(x))))(a), np.eye(3), 1e-12)
    for f in (lambda x: la.eigh(x)[1], lambda x: la.svd(x)[0], lambda x: mx.real(la.eig(x)[1])):
        assert np.isnan(np.array(mx.grad(lambda x, f=f: mx.sum(c * f(x)))(a))).any()


def test_slogdet__of_a_singular_matrix_does_not_stop_the_others():
    a = mx.array([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 4.0]]])
    sign, log = la.slogdet(a)
    assert sign.tolist() == [0, 1]
    assert log[0].item() == -math.inf
    g = np.array(mx.grad(lambda x: mx.sum(la.slogdet(x)[1]))(a))
    assert np.isnan(g[0]).all()
    near(g[1], np.diag([0.5, 0.25]), 1e-6)


def test_solve__shares_one_matrix_among_many_right_sides():
    a, b = drawn(5, 5) + 4 * np.eye(5, dtype=np.float32), drawn(7, 5, 2)
    near(la.solve(given(a), given(b)), np.linalg.solve(a, b), 1e-5)
    got = mx.vmap(la.solve, in_axes=(None, 0))(given(a), given(b))
    near(got, np.linalg.solve(a, b), 1e-5)


# ---- others -------------------------------------------------------------------------
def test_hadamard__keeps_lengths_and_is_its_own_inverse_for_powers_of_2():
    for n in (1, 2, 64, 12, 24, 20, 160, 28, 56, 7168):
        x = drawn(2, n, dtype="float64")
        y = np.array(mx.hadamard_transform(given(x)))
        near(np.linalg.norm(y, axis=1), np.linalg.norm(x, axis=1), 1e-12)
        if n & (n - 1) == 0:
            near(mx.hadamard_transform(given(y)), x, 1e-12)
    big = drawn(70, 1024)
    near(mx.hadamard_transform(given(big)), mx.hadamard_transform(given(big.astype(np.float64))), 1e-5)


def test_hadamard__dtypes_are_the_contracts():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert mx.hadamard_transform(mx.ones((4,), dtype=getattr(mx, dtype))).dtype == getattr(mx, dtype)
    for dtype in ("bool_", "int8", "uint64", "complex64"):
        assert mx.hadamard_transform(mx.ones((4,), dtype=getattr(mx, dtype))).dtype == mx.float32


def test_norm__half_types_do_not_overflow_on_the_way():
    x = mx.full((4,), 300.0, dtype=mx.float16)
    assert la.norm(x).item() == 600.0
    assert la.norm(x).dtype == mx.float16
    assert mx.matrix_norm(mx.ones((2, 2)), "fro").item() == 2.0


def test_multivariate_normal__draws_what_random_md_says():
    got = mx.random.multivariate_normal(mx.zeros((2,)), mx.array([[2.0, 0.5], [0.5, 1.0]]), (2,), key=mx.random.key(0))
    near(got, [[2.380892753601074, -0.35582131147384644], [0.3627791404724121, -0.451336532831192]], 1e-6)
    many = np.array(mx.random.multivariate_normal(mx.array([1.0, -2.0]), mx.array([[2.0, 0.5], [0.5, 1.0]]), (200000,),
                                                  key=mx.random.key(1)))  # fmt: skip
    near(many.mean(0), [1, -2], 0.02)
    near(np.cov(many.T), [[2, 0.5], [0.5, 1]], 0.02)
    assert mx.random.multivariate_normal(mx.zeros((4, 2)), mx.eye(2)).shape == (4, 2)


def test_results__follow_the_dtypes_of_the_contract():
    z = mx.eye(3)
    assert la.det(z.astype(mx.float16)).dtype == mx.float16
    assert la.det(z.astype(mx.int8)).dtype == mx.float32
    assert [x.dtype for x in la.slogdet(z.astype(mx.bfloat16))] == [mx.bfloat16, mx.bfloat16]
    assert la.solve_triangular(z.astype(mx.float16), mx.ones((3,), dtype=mx.int32)).dtype == mx.float32
    assert la.eig(z)[0].dtype == mx.complex64
    assert la.eigvals(z.astype(mx.float64)).dtype == mx.complex128
    assert [x.dtype for x in la.eigh(z.astype(mx.complex64))] == [mx.float32, mx.complex64]
    assert la.svd(z.astype(mx.complex128))[1].dtype == mx.float64
    assert la.norm(z.astype(mx.complex64)).dtype == mx.float32


# ---- small systems, in groups ---------------------------------------------------


@pytest.mark.parametrize("dtype", [mx.float32, mx.float64])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 3), (3, 1), (4, 1), (4, 4), (5, 2), (8, 1), (8, 8), (9, 1), (4, 9)])
def test_groups__give_each_system_its_own_bits(n, k, dtype):
    rng = np.random.default_rng(n + 10 * k)
    a, b = rng.integers(-3, 4, (37, n, n)) + rng.standard_normal((37, n, n)) / 8, rng.standard_normal((37, n, k))
    a, b = (given(v).astype(dtype) for v in (a, b))
    x, y = la.solve(a, b), la.inv(a)
    near(np.array(a @ x), np.array(b), 1e-3 if dtype is mx.float32 else 1e-10)
    for i in range(37):
        assert mx.array_equal(x[i], la.solve(a[i], b[i]))
        assert mx.array_equal(y[i], la.inv(a[i]))
    turned = mx.contiguous(mx.swapaxes(a, 1, 2))
    assert mx.array_equal(x, la.solve(mx.swapaxes(turned, 1, 2), b))
    same = la.solve(mx.broadcast_to(a[0], a.shape), b)
    assert mx.array_equal(same[36], la.solve(a[0], b[36]))


def test_groups__keep_company_apart():
    a = mx.array(np.stack([np.eye(4, dtype=np.float32) * (i + 1) for i in range(21)]))
    b = mx.ones((21, 4, 1))
    bad = mx.where((mx.arange(21) == 5)[:, None, None], math.nan, a)
    x = la.solve(bad, b)
    assert mx.all(mx.isnan(x[5])).item()
    assert mx.array_equal(x[6:], la.solve(a, b)[6:])
    for f in (lambda m: la.solve(m, b), la.inv):
        with pytest.raises(ValueError, match=r"\(17,\) is singular"):
            mx.eval(f(mx.where((mx.arange(21) >= 17)[:, None, None], 0.0, a)))
    swap = mx.array([[0.0, 2.0], [1.0, 0.0]])
    assert la.solve(mx.stack([swap] * 3), mx.ones((3, 2, 1)))[2].tolist() == [[1.0], [0.5]]


@pytest.mark.parametrize("n", [3, 4, 7])
def test_groups__pivot_as_single_systems_do_on_ties(n):
    rng = np.random.default_rng(n)
    a = given(rng.choice([-1.0, 1.0, 0.5], (200, n, n)))
    keep = np.abs(np.linalg.det(np.array(a, dtype=np.float64))) > 1e-3
    a = given(np.array(a)[keep])
    x = la.inv(a)
    for i in range(a.shape[0]):
        assert mx.array_equal(x[i], la.inv(a[i]))
