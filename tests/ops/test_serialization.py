"""Saving and loading: what comes back, and what a bad file does."""

import io
import json
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn


def through(value):
    file = io.BytesIO()
    ng.save(value, file)
    file.seek(0)
    return ng.load(file)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex128", "int8", "bool", ">f8"])
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (2, 3)])
def test_arrays_and_tensors_of_every_dtype(dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    back = through([array, ng.asarray(array)])
    assert type(back[0]) is np.ndarray
    assert isinstance(back[1], ng.Tensor)
    for got in (back[0], back[1].numpy()):
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = ng.tensor(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    assert through(x).dtype == x.dtype
    np.testing.assert_array_equal(through(x).numpy().astype(float), [1.5, -2.0])


def test_containers_numbers_and_text():
    value = OrderedDict(
        a=[1, 2.5, True, None, "text", float("inf"), -0.0, 10**30],
        b={"c": (1 + 2j, ()), 3: np.float32(1.5), (1, "k"): {}},
    )
    back = through(value)
    assert back == value
    assert isinstance(back, OrderedDict)
    assert type(back["b"]) is dict
    assert type(back["b"][3]) is np.float32
    assert np.signbit(back["a"][6])
    assert np.isnan(through(float("nan")))


def test_requires_grad_and_parameters():
    x, y, p = ng.tensor([1.0], requires_grad=True), ng.tensor([2.0]), nn.Parameter([3.0])
    a, b, c, d = through([x, y, p, x * 2])
    assert a.requires_grad
    assert not b.requires_grad
    assert not d.requires_grad
    assert isinstance(c, nn.Parameter)
    (a * a).sum().backward()
    assert a.grad.item() == 2.0


def test_a_model_and_its_optimiser_go_on(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = ng.optim.Adam(model.parameters(), lr=0.1)
    x = np.random.default_rng(0).normal(size=(5, 3))

    def step(model, optimizer):
        optimizer.zero_grad()
        (model(x) ** 3).sum().backward()
        optimizer.step()

    step(model, optimizer)
    ng.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "point.ng")
    saved = ng.load(str(tmp_path / "point.ng"))
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    other.load_state_dict(saved["model"])
    again = ng.optim.Adam(other.parameters(), lr=0.5)
    again.load_state_dict(saved["optimizer"])
    step(model, optimizer)
    step(other, again)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("value", [object(), nn.Linear(1, 1), {"f": len}, [np.array([None])], {1, 2}])
def test_what_cannot_be_saved_is_said_and_writes_nothing(value, tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"before")
    with pytest.raises(TypeError, match="save: "):
        ng.save(value, path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a file ran code",))


def _archive(contents):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return file.getvalue()


def _npy(array, **kwargs):
    file = io.BytesIO()
    np.save(file, array, **kwargs)
    return file.getvalue()


def _table(value):
    return _npy(np.frombuffer(json.dumps(value).encode(), np.uint8))


BAD = {
    "empty": b"",
    "text": b"hello",
    "pickle": pickle.dumps(Evil()),
    "other archive": _archive({"x.npy": _npy(np.ones(2))}),
    "objects": _archive({"contents.json.npy": _npy(np.array([Evil()]), allow_pickle=True)}),
    "other format": _archive({"contents.json.npy": _table({"format": "numbagrad-99", "value": 1})}),
    "missing array": _archive(
        {
            "contents.json.npy": _table(
                {"format": "numbagrad-1", "value": {"kind": "array", "value": "a0", "dtype": "f8"}}
            )
        }
    ),
    "unknown kind": _archive(
        {"contents.json.npy": _table({"format": "numbagrad-1", "value": {"kind": "code", "value": "print()"}})}
    ),
    "no table": _archive({"contents.json.npy": _table([1, 2])}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_give_one_error_and_run_nothing(name):
    with pytest.raises(ValueError, match=r"not a file of numbagrad\.save, or it is damaged"):
        ng.load(io.BytesIO(BAD[name]))


def test_a_file_that_was_cut_off(tmp_path):
    path = tmp_path / "x"
    ng.save(ng.tensor(np.ones(1000)), path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="damaged"):
        ng.load(path)
    with pytest.raises(FileNotFoundError):
        ng.load(tmp_path / "nothing")
