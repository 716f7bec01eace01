"""`autograd.builtins`: Python's own containers, which need no boxes here, and questions about what Tensors hold."""

import builtins
from typing import Any

from numbagrad.ops.extending import getval
from numbagrad.ops.operands import holds_tensor

dict, list, tuple = builtins.dict, builtins.list, builtins.tuple


def isinstance(value: Any, kinds: Any) -> bool:
    """Whether a value, or what a Tensor holds, is of a kind: a Tensor counts as an ndarray, as autograd's boxes do."""
    return builtins.isinstance(value, kinds) or builtins.isinstance(getval(value), kinds)


def type(value: Any) -> Any:
    """The type of a value, or of what a Tensor holds."""
    return builtins.type(getval(value))


class _Holding(builtins.type):
    """isinstance of such a class asks whether a container of some kind holds a Tensor."""

    kind: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        if not builtins.isinstance(instance, cls.kind):
            return False
        return holds_tensor(list(instance.values()) if builtins.isinstance(instance, dict) else instance)


class DictBox(metaclass=_Holding):
    """A dict that holds a Tensor, for isinstance."""

    kind = dict


class ListBox(metaclass=_Holding):
    """A list that holds a Tensor, for isinstance."""

    kind = list


class TupleBox(metaclass=_Holding):
    """A tuple that holds a Tensor, for isinstance."""

    kind = tuple


class SequenceBox(metaclass=_Holding):
    """A list or tuple that holds a Tensor, for isinstance."""

    kind = (list, tuple)


__all__ = ["DictBox", "ListBox", "SequenceBox", "TupleBox", "dict", "isinstance", "list", "tuple", "type"]
