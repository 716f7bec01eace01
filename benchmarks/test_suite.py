"""The cases under pytest-benchmark: `python -m pytest benchmarks --benchmark-group-by=param:case -k overhead`.

It saves, compares with earlier runs and makes histograms. For ratios between libraries use `python -m benchmarks`,
which interleaves them.
"""

import pytest

from benchmarks.cases import all_cases
from benchmarks.libraries import Missing, available
from benchmarks.measure import warm


@pytest.mark.parametrize("library", available(), ids=lambda library: library.name)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.id)
def test_time(benchmark, case, library):
    with library.active():
        try:
            call = case.call(library, case.inputs())
            warm(call)
        except (Missing, NotImplementedError) as error:
            pytest.skip(f"{library.name}: {error}")
        benchmark(call)
