"""What a case is: inputs, a program, who runs it, and how fast it is asked to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.libraries import Call, Library, Missing, Program

OURS = "numbagrad"


@dataclass(frozen=True)
class Bound:
    """Our time is asked to be at most `ratio` times that of `against`."""

    against: str
    ratio: float

    def __str__(self) -> str:
        return f"≤ {self.ratio:.3g}x {self.against}"


NEVER_SLOWER = (Bound("autograd", 1.0),)
"""Asked of every case with gradients: not slower than HIPS autograd."""


@dataclass(frozen=True)
class Case:
    """One row of the table.

    `make(rng, size)` gives the inputs; `program(xp, *inputs)` is what every library runs. `own` replaces it for single
    libraries, by a function of the library and the inputs that gives the call to time (None: it takes no part).
    """

    name: str
    group: str
    mode: str
    make: Callable[[np.random.Generator, int], Sequence[Any]]
    size: int
    program: Program | None = None
    wrt: tuple[int, ...] = ()
    tiny: int = 7
    libraries: tuple[str, ...] | None = None
    own: Mapping[str, Callable[[Library, Sequence[Any]], Call] | None] = field(default_factory=dict)
    bounds: tuple[Bound, ...] = NEVER_SLOWER
    per: int = 1
    """How many ops one call makes, where the time of one op is wanted."""
    tolerance: float = 1e-9
    """Largest relative difference between two libraries."""

    @property
    def id(self) -> str:
        """Group, name and mode: what -k looks at."""
        return f"{self.group}: {self.name}, {self.mode}"

    def inputs(self, size: int | None = None) -> Sequence[Any]:
        """The same inputs for everybody, at the full size or another."""
        return self.make(np.random.default_rng(0), self.size if size is None else size)

    def call(self, library: Library, inputs: Sequence[Any]) -> Call:
        """What to time with this library.

        Raises
        ------
        Missing
            If the library takes no part, or has no such function or mode.
        """
        if self.libraries is not None and library.name not in self.libraries:
            raise Missing("takes no part")
        if library.name in self.own:
            build = self.own[library.name]
            if build is None:
                raise Missing("takes no part")
            return build(library, inputs)
        if self.program is None:
            raise Missing("has no program for this")
        return library.call(self.mode, self.program, inputs, self.wrt)


def results(case: Case, library: Library, inputs: Sequence[Any]) -> list[np.ndarray]:
    """What one call of the case gives with this library."""
    return [library.result(r) for r in case.call(library, inputs)()]


def check_same(case: Case, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], name: str) -> None:
    """Raise AssertionError unless two libraries computed the same, with the same dtypes."""
    assert len(ours) == len(theirs), f"{case.id}: {name} gave {len(theirs)} results, ours are {len(ours)}"
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        what = f"{case.id}: result {k} of {name}"
        # HIPS autograd multiplies by NumPy's float64 constants here and there.
        assert a.dtype == b.dtype or name == "autograd", f"{what} is {b.dtype}, ours {a.dtype}"
        scale = float(np.abs(b).max(initial=0.0)) or 1.0
        np.testing.assert_allclose(a, b, rtol=case.tolerance, atol=case.tolerance * scale, err_msg=what)
