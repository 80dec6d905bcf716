# SPDX-License-Identifier: Apache-2.0
"""Streams and devices: everything of api/ where its inputs are not."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BUILD = Path(os.environ.get("MARRAM_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROVIDERS = BUILD / "lib" / "test_providers"
# Read when a device that is not the CPU is first asked for.
os.environ["MARRAM_PROVIDER_PATH"] = str(PROVIDERS)
os.environ["MARRAM_FAR_SEED"] = "5"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import devices  # noqa: E402
import marram.core as mx  # noqa: E402
import sweep  # noqa: E402
from marram import _core  # noqa: E402

OPERATORS = [op for op in sweep.operators() if op.samples]
COMPUTED = [op for op in OPERATORS if any("f(" in s.text for s in op.samples)]

needs_providers = pytest.mark.skipif(not PROVIDERS.is_dir(), reason="built without tests")


@pytest.fixture(scope="module")
def places() -> tuple[object, object, object]:
    """A stream of the host, of one far device, and of another."""
    return (mx.new_stream(mx.Device(mx.cpu, 0)), mx.new_stream(devices.FAR), mx.new_stream(devices.OTHER))


@pytest.mark.parametrize("op", COMPUTED, ids=lambda op: op.title)
def test_stream__given_explicitly_is_where_it_runs(op: sweep.Operator) -> None:
    devices.check_stream(op)


@needs_providers
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.title)
def test_sweep__inputs_on_one_device_operator_on_another(op: sweep.Operator, places: tuple[object, ...]) -> None:
    host, far, other = places
    ways = [(other, far), (None, far), (far, host), (far, far)]
    devices.check_far(op, ways, sweep.DTYPES)


@pytest.mark.slow
@needs_providers
@pytest.mark.parametrize("check", list(sweep.CHECKS))
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.title)
def test_sweep__all_checks_across_devices(
    op: sweep.Operator, check: str, places: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = sweep.to_mx
    monkeypatch.setattr(sweep, "to_mx", lambda *a: devices.moved(plain(*a), places[2]))
    with mx.stream(places[1]):
        sweep.CHECKS[check](op)


@needs_providers
def test_device__has_streams_and_results(places: tuple[object, ...]) -> None:
    x = mx.add(mx.arange(6), 1, stream=places[1])
    mx.eval(x)
    assert _core._device_of(x) == devices.FAR
    assert places[1].device == devices.FAR


@needs_providers
def test_device__given_as_the_stream_is_where_it_runs() -> None:
    x = mx.add(mx.arange(6), 1, stream=devices.OTHER)
    with mx.stream(devices.FAR):
        y = x * 2
    mx.eval(x, y)
    assert _core._device_of(x) == devices.OTHER
    assert _core._device_of(y) == devices.FAR
    assert y.tolist() == [2, 4, 6, 8, 10, 12]


@needs_providers
def test_device__is_read_on_the_host_by_all_ways(places: tuple[object, ...], tmp_path: Path) -> None:
    def far() -> mx.array:
        return mx.multiply(mx.array([1.0, 2.0, 3.0]), 2, stream=places[1])

    want = np.array([2, 4, 6], np.float32)
    assert far().tolist() == [2, 4, 6]
    assert far()[1].item() == 4
    assert np.array_equal(np.array(far()), want)
    assert np.array_equal(np.from_dlpack(far()), want)
    assert bytes(memoryview(far()).cast("B")) == want.tobytes()
    assert repr(far()) == repr(mx.array(want))
    assert pickle.loads(pickle.dumps(far())).tolist() == [2, 4, 6]
    mx.save(tmp_path / "far.npy", far())
    assert np.array_equal(np.load(tmp_path / "far.npy"), want)
    mx.save_safetensors(tmp_path / "far.safetensors", {"x": far()})
    assert mx.load(tmp_path / "far.safetensors")["x"].tolist() == [2, 4, 6]
    assert (far() + mx.array([1.0, 1.0, 1.0])).tolist() == [3, 5, 7]


@needs_providers
def test_device__memory_that_numpy_writes_counts_everywhere(places: tuple[object, ...]) -> None:
    x = mx.add(mx.zeros((3,)), 1, stream=places[1])
    view = np.from_dlpack(x)
    if not view.flags.writeable:
        view = np.asarray(memoryview(x))
    if not view.flags.writeable:
        pytest.skip("this NumPy gives no writable view")
    for value, place in ((5, places[1]), (6, places[2]), (7, places[0])):
        view[1] = value
        assert mx.add(x, 0, stream=place).tolist() == [1, value, 1]


@needs_providers
def test_command__lists_providers_and_why_not() -> None:
    out = subprocess.run([BUILD / "bin" / "marram"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in out.splitlines() if line.startswith("provider ")]
    assert [line.endswith(": loaded") for line in lines] == [True, True, False]
    assert "stale" in lines[2] and "build both together" in lines[2]


@needs_providers
def test_gradient__crosses_devices(places: tuple[object, ...]) -> None:
    w = mx.array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    x = mx.array(np.ones((2, 3), np.float32))

    def loss(w: mx.array) -> mx.array:
        y = mx.matmul(x, w, stream=places[1])
        z = mx.softmax(y, axis=-1, stream=places[2])
        return mx.sum(mx.square(z) * y)

    def plain(w: mx.array) -> mx.array:
        y = mx.matmul(x, w)
        return mx.sum(mx.square(mx.softmax(y, axis=-1)) * y)

    assert np.array_equal(np.array(mx.grad(loss)(w)), np.array(mx.grad(plain)(w)))


@needs_providers
def test_error__of_the_data_on_a_device_names_operator_and_line(places: tuple[object, ...]) -> None:
    with mx.stream(places[1]):
        y = mx.take(mx.arange(3), mx.array([0, 9]), axis=0)
        with pytest.raises(IndexError, match="index 9 is out of range") as e:
            mx.eval(y)
    assert any("test_devices.py" in note for note in e.value.__notes__)
