"""From the source text of a kernel to a function that runs, once per content.

Everything a kernel's machine code depends on goes into one hash: source, signature, options, and the files
that define what its namespace offers. The hash names the function, so that code from several processes never
shares a symbol, finds the kernel in memory, and (with the processor and the versions) on disk.
"""

import functools
import hashlib
import importlib.util
import linecache
import os
import pickle
import sys
import time
import types as python_types
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite.binding import ffi
from numba.core import codegen, compiler, registry, serialize, sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext

from numbagrad.jit import abi, cache, storage

_VERSIONS = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, np.__version__)
# What these offer is settled by their versions, which are in every hash.
_RELEASED = {"builtins", "cmath", "llvmlite", "math", "numba", "numpy", "operator"}
# What a user may set for Numba that changes code; the processor is in the name of the file on disk.
_NUMBA_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")
# How the identity begins of what only this process knows.
_PASSING = "passing"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that runs.

    Attributes
    ----------
    entry
        The C entry point: takes the arguments by position, returns what the kernel returns.
    source, name
        The text it was made from, and the name of the function in it.
    filename
        Where tracebacks and `linecache` find the source.
    seconds
        What it cost to compile it or to load it.
    from_cache
        Whether it was loaded from disk.
    """

    entry: Callable[..., Any]
    source: str
    name: str
    filename: str
    seconds: float
    from_cache: bool
    _request: "_Request" = field(repr=False, compare=False)
    _result: Any = field(repr=False, compare=False)

    def llvm(self) -> str:
        """The optimised LLVM code; a kernel from disk is compiled again for it."""
        return self._library().get_llvm_str()

    def asm(self) -> str:
        """The machine code as assembly text; a kernel from disk is compiled again for it."""
        return self._library().get_asm_str()

    def _library(self) -> Any:
        return (_compile(self._request) if self.from_cache else self._result).library


@dataclass(frozen=True, slots=True)
class Stats:
    """What kernels have cost this process so far; the difference of two is what lay between them."""

    kernels_compiled: int = 0
    kernels_loaded: int = 0
    seconds_compiling: float = 0.0
    seconds_loading: float = 0.0


# Called with each kernel that had to be compiled or loaded, in the thread that did it.
listeners: list[Callable[[Compiled], None]] = []

_stats = Stats()
_kernels: dict[str, Compiled] = {}


def stats() -> Stats:
    """What kernels have cost this process so far.

    Examples
    --------
    >>> before = stats().kernels_compiled
    >>> stats().kernels_compiled - before
    0
    """
    return _stats


def compile_source(
    source: str,
    name: str,
    signature: Any,
    *,
    namespace: Mapping[str, object] = python_types.MappingProxyType({}),
    fastmath: frozenset[str] = frozenset({"contract"}),
    target_cpu: str | None = None,
    noalias: bool = False,
) -> Compiled:
    """The kernel that `source` defines under `name`, from memory, from disk, or compiled now.

    Parameters
    ----------
    source
        Python text that defines a function called `name`, in the part of Python that Numba compiles.
    name
        The function's name.
    signature
        The Numba signature, such as `void(Flat(float64), Flat(float64))`.
    namespace
        What the source may use besides builtins: modules, intrinsics, numbers.
    fastmath
        The liberties LLVM may take; "contract" keeps nan, inf and the order of sums.
    target_cpu
        A processor in LLVM's words, to look at the code made for another machine; by default this one.
    noalias
        Promise that no array that is written overlaps another argument. LLVM then vectorises loops over many
        arrays.

    Returns
    -------
    Compiled
        The same object for the same content.

    Raises
    ------
    ValueError
        If the source does not define `name`.
    numba.core.errors.TypingError
        If Numba cannot type the source for this signature.

    Examples
    --------
    >>> from numba import float64
    >>> source = "def twice(x):\\n    return 2.0 * x\\n"
    >>> compile_source(source, "twice", float64(float64)).entry(1.5)
    3.0
    """
    request = _request(source, name, signature, namespace, fastmath, target_cpu, noalias)
    kernel = _kernels.get(request.hash)
    if kernel is None:
        with global_compiler_lock:
            kernel = _kernels.get(request.hash) or _kernels.setdefault(request.hash, _make(request))
    return kernel


@dataclass(frozen=True, slots=True)
class _Request:
    """All that a kernel's code depends on, except for the machine, and the hash of that."""

    source: str
    name: str
    signature: Any
    namespace: dict[str, object]
    fastmath: frozenset[str]
    target_cpu: str | None
    noalias: bool
    hash: str
    # Whether another process would find the same under this hash.
    lasting: bool

    @property
    def filename(self) -> str:
        return f"<numbagrad kernel {self.name} {self.hash[:12]}>"

    @property
    def flags(self) -> Any:
        options = {
            "nopython": True,
            "error_model": "numpy",
            "fastmath": set(self.fastmath),
            "boundscheck": False,
            "no_cfunc_wrapper": True,
        }
        flags = registry.cpu_target.options.parse_as_flags(compiler.Flags(), options)
        flags.noalias = self.noalias
        return flags


def _request(
    source: str,
    name: str,
    signature: Any,
    namespace: Mapping[str, object],
    fastmath: frozenset[str],
    target_cpu: str | None,
    noalias: bool,
) -> _Request:
    used = {key: _identity(value) for key, value in sorted(namespace.items())}
    ours = [_file_hash(name) for name in (abi.__name__, storage.__name__, __name__)]
    numbas = [str(getattr(numba.config, name, None)) for name in _NUMBA_SETTINGS]
    options = str(signature), sorted(fastmath), target_cpu, noalias, numbas
    content = hashlib.sha256(repr((_VERSIONS, ours, source, name, used, options)).encode()).hexdigest()
    lasting = not any(text.startswith(_PASSING) for text in used.values())
    return _Request(source, name, signature, dict(namespace), fastmath, target_cpu, noalias, content, lasting)


def _make(request: _Request) -> Compiled:
    """Load the kernel or compile it, and keep the books."""
    start = time.perf_counter()
    _remember_source(request)
    result = _load(request)
    from_cache = result is not None
    if result is None:
        result = _compile(request)
        _save(request, result)
    kernel = Compiled(
        entry=result.entry_point,
        source=request.source,
        name=request.name,
        filename=request.filename,
        seconds=time.perf_counter() - start,
        from_cache=from_cache,
        _request=request,
        _result=result,
    )
    _account(kernel)
    return kernel


def _compile(request: _Request) -> Any:
    with global_compiler_lock:
        typing_context, target_context = _target(request.target_cpu)
        args, returns = sigutils.normalize_signature(request.signature)
        return compiler.compile_extra(
            typing_context, target_context, _function(request), args, returns, request.flags, locals={}
        )


def _function(request: _Request) -> python_types.FunctionType:
    """The Python function, renamed by its content."""
    # Numba looks the module up by name when it loads code from disk, so it must be one that exists.
    scope: dict[str, Any] = {"__name__": __name__, **request.namespace}
    exec(compile(request.source, request.filename, "exec"), scope)
    function = scope.get(request.name)
    if not isinstance(function, python_types.FunctionType):
        raise ValueError(f"the source of a kernel must define a function {request.name!r}:\n{request.source}")
    unique = f"{request.name}_{request.hash[:16]}"
    code = function.__code__.replace(co_name=unique, co_qualname=unique)
    renamed = python_types.FunctionType(code, scope, unique, function.__defaults__)
    renamed.__module__ = __name__
    return renamed


def _remember_source(request: _Request) -> None:
    lines = request.source.splitlines(keepends=True)
    linecache.cache[request.filename] = (len(request.source), None, lines, request.filename)


def _account(kernel: Compiled) -> None:
    global _stats
    if kernel.from_cache:
        loaded, seconds = _stats.kernels_loaded + 1, _stats.seconds_loading + kernel.seconds
        _stats = replace(_stats, kernels_loaded=loaded, seconds_loading=seconds)
    else:
        compiled, seconds = _stats.kernels_compiled + 1, _stats.seconds_compiling + kernel.seconds
        _stats = replace(_stats, kernels_compiled=compiled, seconds_compiling=seconds)
    how = "loaded" if kernel.from_cache else "compiled"
    cache.say("kernels", f"{kernel.filename} {how} in {kernel.seconds * 1e3:.1f} ms")
    for listener in list(listeners):
        listener(kernel)


# ----- On disk -----


def _load(request: _Request) -> Any:
    """The kernel from disk, or None."""
    _, target_context = _target(request.target_cpu)
    body = cache.load(_disk_key(request, target_context)) if request.lasting else None
    if body is None:
        return None
    try:
        target_context.refresh()
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(body))
    except Exception as error:
        cache.say("cache", f"{request.filename} could not be used: {error!r}")
        return None


def _save(request: _Request, result: Any) -> None:
    if not request.lasting or result.library.has_dynamic_globals or result.lifted:
        cache.say("cache", f"{request.filename} depends on this process, not saved")
        return
    _, target_context = _target(request.target_cpu)
    try:
        cache.save(_disk_key(request, target_context), serialize.dumps(result._reduce()))
    except Exception as error:
        cache.say("cache", f"{request.filename} could not be saved: {error!r}")


def _disk_key(request: _Request, target_context: Any) -> str:
    return hashlib.sha256(repr((request.hash, target_context.codegen().magic_tuple())).encode()).hexdigest()


def _identity(value: object) -> str:
    """A text that changes when what `value` does in a kernel may change."""
    if isinstance(value, bool | int | float | complex | str | np.generic | np.dtype | type(None)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, numba.types.Type):
        return f"type {value}"
    if isinstance(value, python_types.ModuleType):
        return f"module {value.__name__} {_file_hash(value.__name__)}"
    module = str(getattr(value, "__module__", None))
    if module.partition(".")[0] in _RELEASED:
        return f"{module} {getattr(value, '__qualname__', value)}"
    name = _global_name(module, value)
    file_hash = name and _file_hash(module)
    # The kernel keeps the object alive, so no other gets its number.
    return f"{module} {name} {file_hash}" if file_hash else f"{_PASSING} {id(value)}"


def _global_name(module: str, value: object) -> str | None:
    """The name under which the module that defines `value` offers it; two functions from one factory differ
    in it."""
    names = vars(sys.modules[module]) if module in sys.modules else {}
    return next((name for name, found in names.items() if found is value), None)


@functools.cache
def _file_hash(module: str) -> str | None:
    """The hash of a module's source; None if it has none, like what is typed into an interpreter."""
    if module.partition(".")[0] in _RELEASED:
        return "released"
    try:
        spec = importlib.util.find_spec(module)
        return hashlib.sha256(spec.loader.get_data(spec.origin)).hexdigest()  # type: ignore[union-attr]
    except (AttributeError, ImportError, OSError, TypeError, ValueError):
        return None


# ----- Processors -----


class _NamedCodegen(codegen.JITCPUCodegen):
    """Code for the processor of that name, whatever this machine has."""

    def __init__(self, cpu: str) -> None:
        self._cpu = cpu
        super().__init__("numbagrad")

    def _get_host_cpu_name(self) -> str:
        return self._cpu

    def _get_host_cpu_features(self) -> str:
        return ""


class _NamedContext(CPUContext):
    def __init__(self, typing_context: Any, cpu: str) -> None:
        self._cpu = cpu
        super().__init__(typing_context)

    def init(self) -> None:
        super().init()
        self._internal_codegen = _NamedCodegen(self._cpu)


@functools.cache
def _target(cpu: str | None) -> tuple[Any, Any]:
    """Numba's typing and target contexts for a processor."""
    typing_context = registry.cpu_target.typing_context
    # Numba's run-time library belongs to the first context made, which must be its own.
    host = registry.cpu_target.target_context
    return typing_context, host if cpu is None else _NamedContext(typing_context, cpu)


# ----- Fork -----

_fork_stack = ExitStack()


def _before_fork() -> None:
    """Wait until no other thread compiles: the child would inherit a lock that nobody gives back."""
    for lock in (global_compiler_lock, ffi.lib._lock):
        _fork_stack.enter_context(lock)


def _after_fork() -> None:
    _fork_stack.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
