# SPDX-License-Identifier: Apache-2.0
"""Memory shared with others: buffers, NumPy, DLPack."""

import array as stdlib_array
import ctypes
import gc
import sys

import marram.core as mx
import numpy as np
import pytest

NUMPY = [
    (mx.bool_, "?"),
    (mx.uint8, "B"),
    (mx.uint16, "H"),
    (mx.uint32, "I"),
    (mx.uint64, "Q"),
    (mx.int8, "b"),
    (mx.int16, "h"),
    (mx.int32, "i"),
    (mx.int64, "q"),
    (mx.float16, "e"),
    (mx.float32, "f"),
    (mx.float64, "d"),
    (mx.complex64, "Zf"),
    (mx.complex128, "Zd"),
]


@pytest.mark.parametrize(("dtype", "format"), NUMPY)
def test_buffer__each_type_has_its_format_and_shares_memory(dtype, format):
    x = mx.array([[1, 0], [1, 1]], dtype=dtype)
    view = memoryview(x)
    assert (view.format, view.shape, view.readonly, view.itemsize) == (format, (2, 2), False, dtype.size)
    a = np.asarray(x)
    assert a.tolist() == x.tolist()
    assert a.dtype.itemsize == dtype.size
    a[0, 0] = 0
    assert x.tolist()[0][0] == 0
    assert mx.array(a).dtype is (mx.float32 if dtype is mx.float64 else dtype)


def test_buffer__strides_without_a_copy():
    x = mx.arange(6).reshape(2, 3)
    mx.eval(x)
    v = memoryview(x.T)
    assert v.strides == (4, 12)
    a = np.asarray(x.T)
    a[2, 1] = 99
    assert x.tolist()[1][2] == 99
    assert np.asarray(x[::-1, 1:]).tolist() == [[4, 99], [1, 2]]


def test_buffer__a_view_outlives_the_array_and_rebinding():
    x = mx.array([1, 2, 3])
    a = np.asarray(x)
    x += 1
    del x
    gc.collect()
    assert a.tolist() == [1, 2, 3]


def test_buffer__contiguous_requests():
    x = mx.arange(6).reshape(2, 3)
    assert bytes(memoryview(x)) == bytes(x)
    with pytest.raises((BufferError, TypeError)):
        ctypes.c_char.from_buffer(x.T)
    assert ctypes.c_int32.from_buffer(x).value == 0
    assert np.asarray(mx.zeros((0, 3))).shape == (0, 3)


def test_buffer__a_traced_array_is_read_only():
    seen = []

    def f(x):
        a = np.asarray(x)
        seen.append(a.flags.writeable)
        return (x * x).sum()

    mx.grad(f)(mx.array([1.0]))
    assert seen == [False]


def test_numpy__array_and_dtype_and_copy():
    x = mx.array([1.5, 2.5])
    assert np.array(x).tolist() == [1.5, 2.5]
    assert np.asarray(x, dtype=np.int32).tolist() == [1, 2]
    a = np.array(x, copy=True)
    a[0] = 9
    assert x.tolist() == [1.5, 2.5]
    b = np.array(x, copy=False)
    b[0] = 9
    assert x.tolist() == [9, 2.5]
    assert x.__array__(np.float64).dtype == np.float64


def test_numpy__bfloat16_needs_a_cast_or_ml_dtypes():
    x = mx.array([1.0, 2.0], dtype=mx.bfloat16)
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="astype"):
            x.__array__()
    else:
        assert x.__array__().astype(np.float32).tolist() == [1, 2]
    assert np.array(x.astype(mx.float32)).tolist() == [1, 2]


def test_numpy__mixed_operations():
    x = mx.array([1.0, 2.0])
    assert isinstance(x + np.ones(2, np.float32), mx.array)
    assert (x == np.array([1.0, 5.0], np.float32)).tolist() == [True, False]
    assert (x @ np.ones((2, 1), np.float32)).tolist() == [3]


def test_buffers__other_exporters():
    assert mx.array(stdlib_array.array("h", [1, -2])).dtype is mx.int16
    assert mx.array(stdlib_array.array("d", [0.5])).tolist() == [0.5]
    assert mx.array((ctypes.c_uint32 * 2)(1, 2)).dtype is mx.uint32
    assert mx.array(memoryview(b"abcd")[::2]).tolist() == [97, 99]
    with pytest.raises(ValueError):
        mx.array(np.array(["a"]))
    with pytest.raises(ValueError):
        mx.array(np.array(["2020-01-01"], dtype="M8[D]"))


# ---- DLPack --------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "_format"), NUMPY)
def test_dlpack__to_numpy_and_back(dtype, _format):
    x = mx.array([[1, 0, 1], [0, 1, 1]], dtype=dtype)
    a = np.from_dlpack(x)
    assert a.tolist() == x.tolist()
    y = mx.from_dlpack(a)
    assert y.tolist() == x.tolist()
    assert y.dtype is (mx.float32 if dtype is mx.float64 else dtype)
    assert np.from_dlpack(x.T).tolist() == x.T.tolist()


def test_dlpack__shares_memory_both_ways():
    a = np.arange(4, dtype=np.float32)
    x = mx.from_dlpack(a)
    a[0] = 7
    assert x.tolist() == [7, 1, 2, 3]
    del a
    gc.collect()
    assert x.tolist() == [7, 1, 2, 3]
    y = mx.asarray(np.asarray(x))
    assert y.tolist() == [7, 1, 2, 3]


def test_dlpack__device_and_refusals():
    x = mx.array([1.0])
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError):
        mx.from_dlpack([1])
    capsule = x.__dlpack__()
    del capsule
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))


def test_dlpack__the_producer_lives_as_long_as_the_array():
    class Producer:
        def __init__(self):
            self.a = np.arange(3, dtype=np.int32)

        def __dlpack__(self, **kw):
            return self.a.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    p = Producer()
    a = p.a
    before = sys.getrefcount(a)
    x = mx.from_dlpack(p)
    assert x.tolist() == [0, 1, 2]
    y = x + 1
    del x
    assert y.tolist() == [1, 2, 3]
    del y
    gc.collect()
    mx.synchronize()
    assert sys.getrefcount(a) == before


def test_asarray__copy():
    x = mx.array([1.0, 2.0])
    mx.eval(x)
    y = mx.asarray(x)
    assert y is not x
    np.asarray(y)[0] = 5
    assert x.tolist() == [5, 2]
    z = mx.asarray(x, copy=True)
    np.asarray(z)[0] = 6
    assert x.tolist() == [5, 2]
    assert mx.asarray([1, 2]).dtype is mx.int32
    assert mx.asarray(x, mx.int32).dtype is mx.int32
    a = np.zeros(2, np.float32)
    assert np.shares_memory(np.asarray(mx.asarray(a, copy=False)), a)
    for f in (
        lambda: mx.asarray([1], copy=False),
        lambda: mx.asarray(x, mx.int32, copy=False),
        lambda: mx.asarray(np.zeros(2), copy=False),
    ):
        with pytest.raises(ValueError):
            f()


def test_asarray__read_only_memory():
    a = np.arange(3, dtype=np.int32)
    a.flags.writeable = False
    assert mx.asarray(a).tolist() == [0, 1, 2]


def test_dlpack__read_only_memory_stays_so():
    a = np.arange(3, dtype=np.int32)
    a.flags.writeable = False
    try:
        a.__dlpack__(max_version=(1, 0))
    except (BufferError, TypeError):
        pytest.skip("this NumPy gives no read-only memory by DLPack")
    x = mx.from_dlpack(a)
    view = np.asarray(x)
    assert np.shares_memory(view, a) and not view.flags.writeable
    with pytest.raises(BufferError):
        x.__dlpack__()
    assert not np.from_dlpack(x).flags.writeable
    y = np.asarray(x + 1)
    y[0] = 5
    assert a.tolist() == [0, 1, 2]


def test_array_namespace():
    x = mx.array(1)
    assert x.__array_namespace__() is mx
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="2030.12")
