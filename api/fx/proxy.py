"""What stands for an array while a function is traced: whatever is done to it is written into the graph."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from numbagrad.fx.node import Node


class TraceError(ValueError):
    """The function does something that a graph cannot hold."""


def place_of_user() -> str:
    """File and line of the innermost caller outside of numbagrad and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("numbagrad", "numpy"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Proxy:
    """A value that is not known yet. Operators, methods, indexing and NumPy's functions become steps of the graph."""

    __hash__ = object.__hash__
    __array_priority__ = 2000.0

    def __init__(self, node: Node, tracer: Any):
        self.node, self.tracer = node, tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"a Proxy has no {name}")
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        target = ufunc if method == "__call__" else getattr(ufunc, method)
        return self.tracer.create_proxy("call_function", target, inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], kinds: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, args, kwargs)

    def __iter__(self) -> Iterator[Any]:
        wanted = _unpacked_into(sys._getframe(1))
        if wanted is None:
            raise self._refusal("iterated over", "its length is not known; index it instead")
        return iter([self[i] for i in range(wanted)])

    def _refusal(self, what: str, why: str) -> TraceError:
        return TraceError(f"{place_of_user()}: a traced value ({self.node.name}) cannot be {what} while tracing: {why}")

    def __bool__(self) -> bool:
        raise self._refusal(
            "asked for its truth",
            "it is not known yet; use ng.where, or hand over what decides as concrete_args",
        )

    def __len__(self) -> int:
        raise self._refusal("asked for its length", "it is not known yet; use x.shape[0] as a traced value")

    def _number(self, *_: Any) -> Any:
        raise self._refusal("made a Python number", "it is not known yet; hand it over as concrete_args")

    __index__ = __int__ = __float__ = __complex__ = _number

    def __contains__(self, value: Any) -> bool:
        raise self._refusal("searched", "its values are not known yet")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._refusal("made an array", "its values are not known yet")


class Attribute(Proxy):
    """``x.name``, which becomes a step only if it is not called as a method."""

    def __init__(self, root: Proxy, name: str):
        self.root, self.name, self.tracer = root, name, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The step that reads the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.name), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.name, (self.root, *args), kwargs)


def _unpacked_into(frame: Any) -> int | None:
    """To how many names the running instruction of `frame` unpacks; None if it does something else."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if dis.opname[code[at]] == "UNPACK_SEQUENCE" else None


def _recorded(function: Callable[..., Any], swap: bool = False) -> Callable[..., Any]:
    def method(self: Proxy, *others: Any) -> Any:
        args = (*others, self) if swap else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return method


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")

for _name in _BINARY:
    setattr(Proxy, f"__{_name}__", _recorded(getattr(operator, f"__{_name}__")))
    setattr(Proxy, f"__r{_name}__", _recorded(getattr(operator, f"__{_name}__"), swap=True))
    setattr(Proxy, f"__i{_name}__", _recorded(getattr(operator, f"__i{_name}__")))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem"):
    setattr(Proxy, f"__{_name}__", _recorded(getattr(operator, f"__{_name}__")))
