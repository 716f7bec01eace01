"""Saving and loading: tensors and containers of them, without running anything that a file says.

A file is NumPy's archive of arrays (npz) with a table of contents in JSON, so it can be read without this library, and
reading it cannot run code. What a table can hold: numbers, strings, None, booleans, lists, tuples, dicts and arrays.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from numbagrad.engine.tensor import Tensor, mark_parameter, wrap

FORMAT = "numbagrad-1"
_CONTENTS = "contents.json"


def save(obj: Any, f: str | os.PathLike[str] | BinaryIO) -> None:
    """Save tensors, arrays, numbers, strings and containers of them, such as a ``state_dict``.

    Parameters
    ----------
    obj : Tensor or container
        Leaf tensors keep whether they require grad; their gradients are not saved.
    f : path or binary file
        A path is written whole or not at all.

    Raises
    ------
    TypeError
        If there is something else in it; save ``model.state_dict()`` instead of a model.

    Examples
    --------
    >>> import io, numbagrad as ng
    >>> file = io.BytesIO()
    >>> ng.save({"w": ng.tensor([1.0, 2.0]), "step": 3}, file)
    >>> _ = file.seek(0)
    >>> ng.load(file)
    {'w': tensor([1., 2.]), 'step': 3}
    """
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({"format": FORMAT, "value": _described(obj, arrays, "the object")})
    if hasattr(f, "write"):
        _write(f, arrays, text)
        return
    import tempfile

    path = Path(os.fspath(f))  # type: ignore[arg-type]
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, arrays, text)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _write(file: Any, arrays: dict[str, np.ndarray], text: str) -> None:
    np.savez(file, **{_CONTENTS: np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]


def _described(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    """The value for JSON: what JSON has stands for itself, the rest is an object with a kind."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"kind": "float", "value": value.hex()}
    if isinstance(value, complex):
        return {"kind": "complex", "value": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return _array(value, arrays, where)
    if isinstance(value, (list, tuple)):
        parts = [_described(v, arrays, f"{where}[{k}]") for k, v in enumerate(value)]
        return parts if type(value) is list else {"kind": "tuple", "value": parts}
    if isinstance(value, dict):
        pairs = [[_described(k, arrays, where), _described(v, arrays, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"kind": "ordered" if isinstance(value, OrderedDict) else "dict", "value": pairs}
    raise TypeError(
        f"save: {where} is a {type(value).__name__}; it can hold tensors, arrays, numbers, strings, lists, tuples and "
        "dicts. Of a model or an optimiser save the state_dict()"
    )


def _array(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    kind = "tensor" if isinstance(value, Tensor) else "array" if isinstance(value, np.ndarray) else "scalar"
    data = np.asarray(value._data if kind == "tensor" else value)
    if data.dtype.kind == "O":
        raise TypeError(f"save: {where} is an array of objects, which could not be loaded safely")
    name = f"a{len(arrays)}"
    dtype = data.dtype.name
    arrays[name] = data.view(np.uint16) if dtype == "bfloat16" else data
    leaf = kind == "tensor" and value.is_leaf
    extra = value._extra if kind == "tensor" else None
    return {
        "kind": kind,
        "value": name,
        "dtype": dtype,
        "requires_grad": bool(leaf and value.requires_grad),
        "parameter": extra is not None and extra.parameter,
    }


def load(f: str | os.PathLike[str] | BinaryIO) -> Any:
    """What `save` saved. Nothing in the file is run.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or not made by `save`.
    """
    from zipfile import BadZipFile

    if not hasattr(f, "read"):
        with open(f, "rb") as file:  # type: ignore[arg-type]
            return load(file)
    try:
        with np.load(f, allow_pickle=False) as archive:
            table = json.loads(archive[_CONTENTS].tobytes())
            if table["format"] != FORMAT:
                raise ValueError(f"its format is {table['format']!r}, wanted {FORMAT!r}")
            return _built(table["value"], archive)
    except (ValueError, KeyError, TypeError, OSError, EOFError, AttributeError, BadZipFile) as error:
        raise ValueError(f"load: this is not a file of numbagrad.save, or it is damaged ({error})") from error


def _built(value: Any, archive: Any) -> Any:
    if isinstance(value, list):
        return [_built(v, archive) for v in value]
    if not isinstance(value, dict):
        return value
    kind, inner = value["kind"], value["value"]
    if kind == "float":
        return float.fromhex(inner)
    if kind == "complex":
        return complex(*map(float.fromhex, inner))
    if kind == "tuple":
        return tuple(_built(v, archive) for v in inner)
    if kind in ("dict", "ordered"):
        pairs = [(_built(k, archive), _built(v, archive)) for k, v in inner]
        return OrderedDict(pairs) if kind == "ordered" else dict(pairs)
    if kind not in ("tensor", "array", "scalar"):
        raise ValueError(f"it holds something of kind {kind!r}")
    return _loaded(value, archive[inner])


def _loaded(value: Any, data: np.ndarray) -> Any:
    if value["dtype"] == "bfloat16":
        from numbagrad.jit.storage import dtype_of

        data = data.view(dtype_of("bfloat16"))
    if value["kind"] != "tensor":
        return data if value["kind"] == "array" else data[()]
    made = wrap(data)
    if value["requires_grad"]:
        made.requires_grad = True
    return mark_parameter(made) if value["parameter"] else made


__all__ = ["load", "save"]
