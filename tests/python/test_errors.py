# SPDX-License-Identifier: Apache-2.0
"""Exceptions: their kinds, their notes, and that a failed call changes nothing."""

import inspect
import os
import subprocess
import sys

import marram.core as mx
import pytest


def line():
    return inspect.currentframe().f_back.f_lineno


def notes(e):
    return getattr(e.value, "__notes__", [])


def test_kinds__follow_what_went_wrong():
    x = mx.zeros((2, 3))
    for f, kind in [
        (lambda: x + mx.zeros((4,)), ValueError),
        (lambda: x.sum(axis=5), IndexError),
        (lambda: x.reshape(7), ValueError),
        (lambda: mx.load("/nowhere/x.npy"), OSError),
        (lambda: mx.load("/nowhere/x.npy"), RuntimeError),
        (lambda: mx.load("/nowhere/x.npy"), mx.FileError),
        (lambda: mx.zeros((-1,)), ValueError),
        (lambda: mx.floor(mx.array([1j])), ValueError),
    ]:
        with pytest.raises(kind):
            f()


def test_message__names_the_operator_and_the_shapes():
    with pytest.raises(ValueError, match=r"^add: .*2.*3.*4"):
        mx.zeros((2, 3)) + mx.zeros((4,))


def test_notes__none_where_the_line_itself_fails():
    with pytest.raises(ValueError) as e:
        mx.zeros((2, 3)) + mx.zeros((4,))
    assert notes(e) == []


def test_notes__name_the_line_that_made_the_node():
    x = mx.arange(3)
    y, made = x[mx.array([9])], line()
    for read in (lambda: mx.eval(y), lambda: y.tolist(), lambda: repr(y), lambda: mx.eval(y + 1)):
        with pytest.raises(IndexError) as e:
            read()
        assert f"created at {__file__}:{made}" in notes(e)


INDEXED = {
    "x[index] or take": lambda x, i: x[i],
    "take or take_along_axis": lambda x, i: mx.take_along_axis(x, i, 0),
    "x[index] = v or x.at[index]": lambda x, i: x.at[i].multiply(mx.ones(1)),
    "put_along_axis": lambda x, i: mx.put_along_axis(x, i, mx.ones(1), 0),
    "gather_mm": lambda x, i: mx.gather_mm(mx.ones((1, 1, 3)), x.reshape(1, 3, 1), rhs_indices=i),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("how", ["grad", "compiled", "mapped", "twice"])
def test_gradient__of_a_bad_index_names_what_the_user_wrote(name, how):
    """Nobody asks for the value: what fails is an operator that the rule made."""
    f = INDEXED[name]

    def loss(x, i):
        return (f(x, i) ** 3).sum()

    g = mx.grad(loss)
    if how == "twice":
        g = mx.grad(lambda x, i: mx.grad(loss)(x, i).sum())
    if how == "mapped":
        g = mx.vmap(g)
    if how == "compiled":
        g = mx.compile(g)
    x, i = mx.array([1.0, 2.0, 3.0]), mx.array([9])
    x, i = (mx.stack([x, x]), mx.stack([i, i])) if how == "mapped" else (x, i)
    with pytest.raises(IndexError) as e:
        mx.eval(g(x, i))
    assert str(e.value).startswith(f"{name}: index 9 is out of range")
    assert any(f"created at {__file__}:" in n for n in notes(e))


def test_notes__of_a_line_in_a_loop_and_of_a_long_function():
    made = {}
    for i in range(3):
        made[i] = mx.arange(3)[mx.array([5 + i])], line()
    for y, n in made.values():
        with pytest.raises(IndexError) as e:
            mx.eval(y)
        assert any(s.endswith(f":{n}") for s in notes(e))


def test_notes__can_be_turned_off():
    code = (
        "import marram.core as mx\n"
        "y = mx.arange(3)[mx.array([9])]\n"
        "try:\n"
        "    mx.eval(y)\n"
        "except IndexError as e:\n"
        "    print(any('created' in n for n in getattr(e, '__notes__', [])))\n"
    )
    for value, want in (("0", "False"), ("1", "True")):
        env = {**os.environ, "MARRAM_SITES": value}
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
        assert out.stdout.strip() == want, out.stderr


def test_failure__is_kept_with_the_array():
    y = mx.arange(3)[mx.array([9])]
    for _ in range(3):
        with pytest.raises(IndexError):
            mx.eval(y)


def test_failure__leaves_everything_as_it_was():
    x = mx.array([1.0, 2.0])
    with pytest.raises(ValueError):
        x += mx.zeros((3,))
    assert x.tolist() == [1, 2]
    with pytest.raises(ValueError):
        x[0] = mx.zeros((3,))
    assert x.tolist() == [1, 2]
    assert (x + 1).tolist() == [2, 3]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: lambda x: mx.grad(f)(x),
        lambda f: lambda x: mx.value_and_grad(f)(x),
        lambda f: lambda x: mx.vmap(f)(x),
        lambda f: lambda x: mx.vjp(f, [x], [x]),
        lambda f: lambda x: mx.jvp(f, [x], [x]),
        lambda f: mx.compile(f),
        lambda f: lambda x: mx.grad(lambda y: mx.vmap(f)(y).sum())(x),
        lambda f: mx.compile(mx.grad(f)),
    ],
)
def test_user_exception__passes_through_unchanged(wrap):
    class Mine(Exception):
        pass

    mine = Mine("hello")

    def f(x):
        raise mine

    with pytest.raises(Mine) as e:
        wrap(f)(mx.array([1.0, 2.0]))
    assert e.value is mine
    assert any(t.name == "f" for t in e.traceback)
    assert (mx.array([1.0]) + 1).tolist() == [2]


def test_user_exception__may_be_caught_inside():
    def f(x):
        try:
            x + mx.zeros((7,))
        except ValueError:
            return (x * x).sum()

    assert mx.grad(f)(mx.array([1.0, 2.0])).tolist() == [2, 4]


def test_keyboard_interrupt__passes_through():
    def f(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mx.grad(f)(mx.array(1.0))


def test_trace__evaluation_inside_is_refused():
    def f(x):
        mx.eval(x)
        return x

    for g in (mx.compile(f), mx.vmap(f)):
        with pytest.raises((ValueError, RuntimeError)):
            g(mx.array([1.0]))
    for read in (bool, float, repr, mx.array.tolist):
        with pytest.raises((ValueError, RuntimeError)):
            mx.compile(lambda x, read=read: (read(x), x)[1])(mx.array(1.0))
