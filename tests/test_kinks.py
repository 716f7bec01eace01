"""docs/kinks.md is true: every row of its table, on both backends."""

import math
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng

TABLE = Path(__file__).parent.parent / "docs" / "kinks.md"


def numbers(cell):
    return (
        [float(eval(v, {"inf": math.inf, "nan": math.nan, "pi": math.pi})) for v in cell.split(",")] if cell else None
    )


def rows():
    for line in TABLE.read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].startswith("`"):
            yield pytest.param(cells[0].strip("`"), *map(numbers, cells[1:5]), id=f"{cells[0]} at {cells[1]}")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("function", "x", "y", "by_x", "by_y"), list(rows()))
def test_gradient_at_the_kink(function, x, y, by_x, by_y, backend, dtype):
    with ng.use_backend(backend):
        tx = ng.tensor(np.array(x, dtype), requires_grad=True)
        ty = ng.tensor(np.array(x if y is None else y, dtype), requires_grad=True)
        result = eval(function, {"ng": ng}, {"x": tx, "y": ty})
        gx, gy = ng.autograd.grad(result.sum(), [tx, ty], materialize_grads=True)
    np.testing.assert_allclose(np.asarray(gx), by_x, rtol=1e-6)
    if by_y is not None:
        np.testing.assert_allclose(np.asarray(gy), by_y, rtol=1e-6)


def test_the_table_is_there():
    assert len(list(rows())) > 30
