"""Modules that hold modules or parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from numbagrad.nn.module import Module
from numbagrad.nn.parameter import Parameter


class Sequential(Module):
    """Modules one after the other.

    Examples
    --------
    >>> import numpy as np, numbagrad as ng
    >>> model = ng.nn.Sequential(ng.nn.Linear(2, 3), ng.nn.ReLU(), ng.nn.Linear(3, 1))
    >>> model(np.ones((4, 2))).shape
    (4, 1)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        items = list(self._modules.items())
        return Sequential(OrderedDict(items[index])) if isinstance(index, slice) else items[index][1]

    def append(self, module: Module) -> Sequential:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        found = list(self._modules.values())[index]
        return ModuleList(found) if isinstance(index, slice) else found

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[index], module)


class ModuleDict(Module):
    """A dict of modules."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()


class ParameterList(Module):
    """A list of parameters; tensors become parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self)), value if isinstance(value, Parameter) else Parameter(value))
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Any:
        return list(self._parameters.values())[index]


class ParameterDict(Module):
    """A dict of parameters; tensors become parameters."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        for name, value in (values or {}).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return self._parameters.items()


__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
