"""Modules: trees of parameters with a forward, as torch.nn.Module."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from numbagrad.engine.mode import no_grad
from numbagrad.engine.node import RemovableHandle
from numbagrad.engine.tensor import Tensor
from numbagrad.nn.parameter import Parameter

_GROUPS = ("_parameters", "_buffers", "_modules")


class Module:
    """Base of all layers and models.

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> class Model(ng.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = ng.nn.Linear(2, 3)
    ...         self.scale = ng.nn.Parameter(1.0)
    ...
    ...     def forward(self, x):
    ...         return ng.tanh(self.hidden(x)) * self.scale
    >>> model = Model()
    >>> [name for name, _ in model.named_parameters()]
    ['scale', 'hidden.weight', 'hidden.bias']
    >>> model(np.ones((4, 2))).shape
    (4, 3)
    """

    training: bool

    def __init__(self) -> None:
        for group in _GROUPS:
            object.__setattr__(self, group, {})
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_transient", set())
        object.__setattr__(self, "_hooks", {"forward": {}, "pre": {}})

    # ------------------------------------------------------------------ attributes
    def __setattr__(self, name: str, value: Any) -> None:
        groups = self.__dict__
        if "_parameters" not in groups:
            if isinstance(value, (Parameter, Module)):
                raise AttributeError(f"cannot assign {name} before Module.__init__() call")
            object.__setattr__(self, name, value)
            return
        kind = "_parameters" if isinstance(value, Parameter) else "_modules" if isinstance(value, Module) else None
        if kind is not None:
            if name not in groups[kind]:
                self._forget(name)
            groups[kind][name] = value
        elif name in groups["_parameters"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign {type(value).__name__} as parameter {name!r} (nn.Parameter or None expected)"
                )
            groups["_parameters"][name] = None
        elif name in groups["_modules"] and value is None:
            groups["_modules"][name] = None
        elif name in groups["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign {type(value).__name__} as buffer {name!r} (Tensor or None expected)")
            groups["_buffers"][name] = value
        else:
            self._forget(name)
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for group in _GROUPS:
            found = self.__dict__.get(group, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if not any(name in self.__dict__[group] for group in _GROUPS):
            object.__delattr__(self, name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self.__dict__.pop(name, None)
        for group in _GROUPS:
            self.__dict__[group].pop(name, None)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for g in _GROUPS for n in self.__dict__.get(g, {}))})

    def register_parameter(self, name: str, param: Any) -> None:
        """Add a parameter (or None) under a name."""
        self._check_name(name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign {type(param).__name__} to parameter {name!r}; wrap it in nn.Parameter")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor (or None) that is part of the state but no parameter."""
        self._check_name(name, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign {type(tensor).__name__} to buffer {name!r} (Tensor or None expected)")
        self._buffers[name] = tensor
        if not persistent:
            self._transient.add(name)

    def register_module(self, name: str, module: Any) -> None:
        """Add a child under a name."""
        self._check_name(name, "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = module

    add_module = register_module

    def _check_name(self, name: str, what: str) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise KeyError(f"{what} name must be a string without dots, got {name!r}")
        if hasattr(self, name) and not any(name in self.__dict__[g] for g in _GROUPS):
            raise KeyError(f"attribute {name!r} already exists")

    # ------------------------------------------------------------------ calling
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for hook in list(self._hooks["pre"].values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in list(self._hooks["forward"].values()):
            changed = hook(self, args, result)
            result = result if changed is None else changed
        return result

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, args)`` before forward; what it returns replaces the arguments."""
        return RemovableHandle(self._hooks["pre"], hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after forward; what it returns replaces the output."""
        return RemovableHandle(self._hooks["forward"], hook)

    # ------------------------------------------------------------------ walking
    def named_modules(self, memo: set[int] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once, with their names."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below, with their names."""
        return ((name, child) for name, child in self._modules.items() if child is not None)

    def children(self) -> Iterator[Module]:
        """The modules right below."""
        return (child for _, child in self.named_children())

    def _named(self, group: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, value in getattr(module, group).items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Any]]:
        """The parameters with their names, each once."""
        return self._named("_parameters", prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """The parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Any]]:
        """The buffers with their names."""
        return self._named("_buffers", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """The buffers."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name."""
        found: Any = self
        for part in target.split(".") if target else ():
            found = found._modules.get(part)
            if found is None:
                raise AttributeError(f"{type(self).__name__} has no module {target!r}")
        return found

    def get_parameter(self, target: str) -> Any:
        """The parameter of a dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter {target!r}")
        return found

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call a function with every module, the lowest first."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    # ------------------------------------------------------------------ modes
    def train(self, mode: bool = True) -> Module:
        """Training mode for this module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, got {mode!r}")
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Module:
        """Evaluation mode: dropout passes, batch norms use what they have seen."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Whether the parameters require grad."""
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the parameters' gradients, or set them to zero."""
        for p in self.parameters():
            if p.grad is not None:
                p.grad = None if set_to_none else p.grad * 0

    # ------------------------------------------------------------------ dtypes
    def to(self, dtype: Any = None, device: Any = None) -> Module:
        """Give floating parameters and buffers another dtype. The only device is "cpu"."""
        if isinstance(dtype, str) and dtype == "cpu":
            dtype = None
        if device not in (None, "cpu"):
            raise ValueError(f"there is no device {device!r} here, only 'cpu'")
        return self if dtype is None else self._converted(np.dtype(dtype))

    def _converted(self, dtype: np.dtype) -> Module:
        if dtype.kind not in "fc":
            raise TypeError(f"nn.Module.to only accepts floating or complex dtypes, got {dtype}")
        for module in self.modules():
            for group in (module._parameters, module._buffers):
                for value in group.values():
                    if value is not None and value.dtype.kind in "fc":
                        _replace(value, value._data.astype(dtype))
        return self

    def double(self) -> Module:
        """float64."""
        return self._converted(np.dtype(np.float64))

    def float(self) -> Module:
        """float32."""
        return self._converted(np.dtype(np.float32))

    def half(self) -> Module:
        """float16."""
        return self._converted(np.dtype(np.float16))

    # ------------------------------------------------------------------ saving
    def state_dict(self, prefix: str = "") -> OrderedDict[str, Tensor]:
        """Parameters and persistent buffers by name, detached, sharing memory."""
        found: OrderedDict[str, Tensor] = OrderedDict()
        for path, module in self._all_modules(prefix.rstrip(".")):
            for name, value in (*module._parameters.items(), *module._buffers.items()):
                if value is not None and name not in module._transient:
                    found[f"{path}.{name}" if path else name] = value.detach()
        return found

    def _all_modules(self, prefix: str) -> Iterator[tuple[str, Module]]:
        """As named_modules, with shared ones under each of their names."""
        yield prefix, self
        for name, child in self.named_children():
            yield from child._all_modules(f"{prefix}.{name}" if prefix else name)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Copy values into parameters and buffers.

        Raises
        ------
        RuntimeError
            If a shape differs, or with `strict` if names are missing or unexpected; nothing is changed then.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict).__name__}")
        own = self.state_dict()
        result = LoadResult([n for n in own if n not in state_dict], [n for n in state_dict if n not in own])
        arrays = {n: _array(v) for n, v in state_dict.items() if n in own}
        problems = [
            f"size mismatch for {n}: copying a param with shape {a.shape} from checkpoint, the shape in current model "
            f"is {own[n].shape}."
            for n, a in arrays.items()
            if a.shape != own[n].shape
        ]
        if strict and result.unexpected_keys:
            problems.append(f"Unexpected key(s) in state_dict: {', '.join(map(repr, result.unexpected_keys))}.")
        if strict and result.missing_keys:
            problems.append(f"Missing key(s) in state_dict: {', '.join(map(repr, result.missing_keys))}.")
        if problems:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(problems))
        with no_grad():
            for name, array in arrays.items():
                own[name].copy_(array)
        return result

    # ------------------------------------------------------------------ showing
    def extra_repr(self) -> str:
        """What stands between the parentheses."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self._modules.items()]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        inside = "\n  ".join([*([extra] if extra else []), *lines])
        return f"{type(self).__name__}(\n  {inside}\n)"


class LoadResult:
    """What `load_state_dict` found: ``missing_keys`` and ``unexpected_keys``."""

    def __init__(self, missing_keys: list[str], unexpected_keys: list[str]) -> None:
        self.missing_keys = missing_keys
        self.unexpected_keys = unexpected_keys

    def __iter__(self) -> Iterator[list[str]]:
        return iter((self.missing_keys, self.unexpected_keys))

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def _array(value: Any) -> np.ndarray:
    return value._data if isinstance(value, Tensor) else np.asarray(value)


def _replace(tensor: Tensor, array: np.ndarray) -> None:
    """Give a leaf other values, and its gradient their dtype."""
    grad = tensor.grad
    tensor.grad = None
    tensor.data = Tensor(array)
    if grad is not None:
        tensor.grad = grad.astype(array.dtype)  # type: ignore[attr-defined]


__all__ = ["Module"]
