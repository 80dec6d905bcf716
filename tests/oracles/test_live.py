# SPDX-License-Identifier: Apache-2.0
"""Live comparison with the wheels of MLX, PyTorch and JAX (make test-oracles).

Each peer that is not installed skips its tests.  Values only: nothing of a
peer's source is needed or read.
"""

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(7)


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def close(got, want, rtol=2e-5, atol=2e-6):
    np.testing.assert_allclose(
        np.array(got), np.asarray(want), rtol=rtol, atol=atol
    )


# ---- MLX: same names, same numbers -------------------------------------------

KEYS = [0, 1, 7, 2**40 + 5]
DRAWS = {
    "uniform": lambda m, k: m.random.uniform(shape=(5, 3), key=k),
    "uniform_half": lambda m, k: m.random.uniform(
        shape=(9,), dtype=m.float16, key=k
    ),
    "randint": lambda m, k: m.random.randint(-5, 900, (7,), key=k),
    "bernoulli": lambda m, k: m.random.bernoulli(0.3, (17,), key=k),
    "permutation": lambda m, k: m.random.permutation(13, key=k),
    "split": lambda m, k: m.random.split(k, 5),
    "categorical": lambda m, k: m.random.categorical(
        m.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]), num_samples=6, key=k
    ),
}


@pytest.mark.parametrize("seed", KEYS)
@pytest.mark.parametrize("name", DRAWS)
def test_random__bits_equal_mlx(name, seed):
    peer = pytest.importorskip("mlx.core")
    got = DRAWS[name](mx, mx.random.key(seed))
    want = DRAWS[name](peer, peer.random.key(seed))
    assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]
    assert np.array_equal(
        np.array(got.astype(mx.float64)),
        np.array(want.tolist(), dtype=np.float64),
    )


@pytest.mark.parametrize("seed", KEYS)
def test_random__normal_is_within_2_ulp_of_mlx(seed):
    peer = pytest.importorskip("mlx.core")
    got = np.array(mx.random.normal((1000,), key=mx.random.key(seed)))
    want = np.array(peer.random.normal((1000,), key=peer.random.key(seed)))
    assert (abs(got - want) <= 2 * np.spacing(abs(want))).all()


UNARY = (
    "abs arccosh arcsinh arctan cos cosh erf erfinv exp expm1 floor log log1p "
    "negative reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh"
).split()


@pytest.mark.parametrize("name", UNARY)
def test_unary__agrees_with_mlx(name):
    peer = pytest.importorskip("mlx.core")
    x = RNG.uniform(0.05, 0.95, 200).astype(np.float32)
    if name == "arccosh":
        x += 1
    close(
        getattr(mx, name)(mx.array(x)),
        getattr(peer, name)(peer.array(x)),
        rtol=4e-6,
    )


@pytest.mark.parametrize("name", "add subtract multiply divide power maximum logaddexp arctan2 remainder floor_divide".split())
def test_binary__agrees_with_mlx(name):
    peer = pytest.importorskip("mlx.core")
    x, y = abs(draw(4, 5)) + 0.1, abs(draw(5)) + 0.1
    close(
        getattr(mx, name)(mx.array(x), mx.array(y)),
        getattr(peer, name)(peer.array(x), peer.array(y)),
    )


# ---- PyTorch: layers and their gradients -----------------------------------------


def test_attention__agrees_with_torch():
    torch = pytest.importorskip("torch")
    q, k, v = draw(2, 4, 7, 8), draw(2, 4, 9, 8), draw(2, 4, 9, 8)
    want = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q, k, v))
    )
    got = mx.fast.scaled_dot_product_attention(
        *map(mx.array, (q, k, v)), scale=8**-0.5
    )
    close(got, want)


def test_layer_norm__value_and_gradients_agree_with_torch():
    torch = pytest.importorskip("torch")
    x, w, b, c = draw(6, 33), draw(33), draw(33), draw(6, 33)
    ins = [torch.tensor(a, requires_grad=True) for a in (x, w, b)]
    y = torch.nn.functional.layer_norm(ins[0], (33,), ins[1], ins[2], 1e-5)
    (y * torch.from_numpy(c)).sum().backward()

    def f(x, w, b):
        return (mx.fast.layer_norm(x, w, b, 1e-5) * mx.array(c)).sum()

    got = mx.grad(f, argnums=[0, 1, 2])(*map(mx.array, (x, w, b)))
    for g, t in zip(got, ins, strict=True):
        close(g, t.grad, rtol=1e-4, atol=1e-5)


def test_mlp__gradients_agree_with_torch():
    torch = pytest.importorskip("torch")
    x, w1, w2 = draw(16, 12), draw(12, 20), draw(20, 5)
    y = RNG.integers(0, 5, 16)
    ins = [torch.tensor(a, requires_grad=True) for a in (w1, w2)]
    z = torch.tanh(torch.from_numpy(x) @ ins[0]) @ ins[1]
    torch.nn.functional.cross_entropy(z, torch.from_numpy(y)).backward()

    def f(w1, w2):
        z = mx.tanh(mx.array(x) @ w1) @ w2
        of = mx.take_along_axis(z, mx.array(y)[:, None], axis=1)
        return (mx.logsumexp(z, axis=1, keepdims=True) - of).mean()

    for step in (mx.grad(f, argnums=[0, 1]), mx.compile(mx.grad(f, argnums=[0, 1]))):
        for g, t in zip(step(mx.array(w1), mx.array(w2)), ins, strict=True):
            close(g, t.grad, rtol=1e-4, atol=1e-6)


# ---- JAX: transforms in each other ------------------------------------------------


def test_hessian_and_vmap__agree_with_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    x, a = draw(5), draw(5, 5)

    def ours(v):
        return mx.tanh(mx.array(a) @ v).sum() * mx.exp(-(v * v).sum())

    def theirs(v):
        return jnp.tanh(a @ v).sum() * jnp.exp(-(v * v).sum())

    want = jax.hessian(theirs)(x)
    rows = [
        mx.grad(lambda v, i=i: mx.grad(ours)(v)[i])(mx.array(x))
        for i in range(5)
    ]
    close(mx.stack(rows), want, rtol=2e-4, atol=1e-5)
    batch = draw(3, 5)
    close(
        mx.vmap(mx.grad(ours))(mx.array(batch)),
        jax.vmap(jax.grad(theirs))(batch),
        rtol=2e-4,
        atol=1e-5,
    )
