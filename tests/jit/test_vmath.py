"""Vector mathematics: is it accurate, exact at its ends, and made of vectors?"""

import importlib.util
import platform
import re
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from numba.core.codegen import CPUCodeLibrary

from numbagrad.jit import intrinsics, vmath, vmath_rare
from numbagrad.jit.abi import Flat
from numbagrad.jit.compile import compile_source

pytest.importorskip("mpmath")
pytest.importorskip("scipy")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "vmath_accuracy.py"
spec = importlib.util.spec_from_file_location("vmath_accuracy", SCRIPT)
accuracy = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(accuracy)

IS_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
# The host, and on x86 a processor with AVX2 and one that has neither FMA nor instructions for rounding.
PROCESSORS = (None, "haswell", "x86-64") if IS_X86 else (None,)
RUNNABLE = (None, "x86-64") if IS_X86 else (None,)

every_function = pytest.mark.parametrize("name", sorted(vmath.SUPPORTED))
both_dtypes = pytest.mark.parametrize("dtype", accuracy.DTYPES)


def test_every_function_has_something_to_be_compared_with():
    assert set(accuracy.FUNCTIONS) == vmath.SUPPORTED


# ----- Accuracy -----


@every_function
@pytest.mark.parametrize("cpu", RUNNABLE)
def test_float64_is_accurate(name, cpu):
    error, where = accuracy.measure(name, "float64", count=120, cpu=cpu)
    assert error <= accuracy.FUNCTIONS[name].limit64, f"{error} ulp at {where}"


@every_function
@pytest.mark.parametrize("cpu", RUNNABLE)
def test_float32_is_accurate(name, cpu):
    error, where = accuracy.measure(name, "float32", count=20_000, cpu=cpu)
    assert error <= accuracy.FUNCTIONS[name].limit32, f"{error} ulp at {where}"


# Where NumPy or SciPy lose what the body keeps.
BETTER = {
    ("sigmoid", "float32"): lambda x: x == -100,  # a subnormal number
    ("lgamma", "float64"): lambda x: np.abs(x) < 1e-308,  # finite
    ("sinc", "float32"): lambda x: x == np.rint(x),  # 0 at whole numbers, where sin(pi * x) is not
    ("sinc", "float64"): lambda x: x == np.rint(x),
}


@every_function
@both_dtypes
def test_special_values_are_numpys(name, dtype):
    xs = accuracy.special_values(dtype, accuracy.FUNCTIONS[name].arity)
    got = accuracy.evaluate(name, *xs)
    with np.errstate(all="ignore"):
        want = accuracy.FUNCTIONS[name].numpy(*xs)
    # What is rounded may differ in its last places, which the other tests look at.
    plain = np.isfinite(want) & np.isfinite(got) & (want != 0) & (got != 0)
    plain |= BETTER.get((name, dtype), lambda *xs: np.False_)(*xs) & ~np.isnan(got)
    np.testing.assert_array_equal(got[~plain], want[~plain])
    signs = ~plain & ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[signs]), np.signbit(want[signs]))


def test_sinc_is_zero_at_whole_numbers_and_one_at_zero():
    x = np.array([0.0, -0.0, 1.0, -2.0, 1e15, -1e300])
    np.testing.assert_array_equal(accuracy.evaluate("sinc", x), [1, 1, 0, 0, 0, 0])


@both_dtypes
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_one_huge_angle_among_small_ones_changes_only_itself(name, dtype):
    x = np.linspace(-3, 3, 67, dtype=dtype)
    alone = accuracy.evaluate(name, x)
    x[40] = 3e37
    mixed = accuracy.evaluate(name, x)
    assert mixed[40] == pytest.approx(float(accuracy.FUNCTIONS[name].numpy(np.float64(x[40]))), rel=1e-6)
    np.testing.assert_array_equal(np.delete(mixed, 40), np.delete(alone, 40))


@pytest.mark.parametrize(
    "name", ["exp", "expm1", "log1p", "sinh", "tanh", "sigmoid", "softplus", "sin", "tan", "arcsinh"]
)
def test_a_product_in_front_does_not_break_what_rounding_keeps(name):
    # LLVM may contract the product with sums in the body, whose parts must still fit together.
    lines = ["t = a[i] * b[i]", *vmath.emit(name, "float64", ["t"], "y"), "out[i] = y"]
    source = "def product(a, b, out):\n    for i in range(out.size):\n" + "".join(f"        {line}\n" for line in lines)
    signature = numba.void(Flat("float64"), Flat("float64"), Flat("float64", writable=True))
    kernel = compile_source(source, "product", signature, namespace=vmath.NAMESPACE)
    rng = np.random.default_rng(0)
    a, b, got = np.exp2(rng.uniform(-20, 0, 3000)), rng.uniform(0.5, 1, 3000), np.empty(3000)
    kernel.entry(a, b, got)
    worst, at = accuracy.worst_float64(got, *accuracy.exact_values(name, [a * b]), np.zeros(3000))
    assert worst <= accuracy.FUNCTIONS[name].limit64 + 1, f"{worst} ulp at {a[at], b[at]}"


# ----- Code -----


LIBM_NAMES = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 floor fmod hypot lgamma log "
    "log10 log1p log2 pow rint round sin sinh sqrt tan tanh tgamma trunc"
)
LIBM = rf"(?<![\w.])({LIBM_NAMES.replace(' ', '|')})f?(?![\w.])"
RARE = {"sin", "cos", "tan", "mod"}
"""Those that ask a function whether libm has to answer, once for a vector."""


@every_function
@both_dtypes
@pytest.mark.parametrize("cpu", PROCESSORS)
def test_loops_are_vectorised(name, dtype, cpu):
    assembly = own_assembly(accuracy.kernel(name, dtype, cpu))
    hot = [block for block in loops(assembly) if sum(map(is_packed, block)) >= 2]
    assert hot, "no loop of packed instructions"
    assert max(sum(map(is_call, block)) for block in hot) <= (name in RARE)
    assert not re.search(LIBM, re.sub(r"\t(v?\w+|\w+)\t", "\t", assembly))


def own_assembly(kernel):
    """Without what wraps the kernel, and without the functions for rare arguments."""
    text = kernel.asm()
    start = re.search(rf"^_?_ZN?\S*{kernel.name}_[0-9a-f]+\S*:", text, re.M).start()
    end = re.search(r"^\s*\.size|^\s*\.cfi_endproc", text[start:], re.M)
    return text[start : start + end.start()]


def loops(assembly):
    """Blocks that jump back to their start."""
    label, block = "", []
    for line in assembly.splitlines():
        if match := re.match(r"(\.?L\w+):", line):
            label, block = match[1], []
        elif line.startswith("\t") and not line.strip().startswith("."):
            block.append(line.strip())
            if re.match(rf"(j\w+|b|b\.\w+|cbn?z|tbn?z)\s.*{re.escape(label)}$", block[-1]) and label:
                yield block


def is_packed(line):
    x86 = r"v?\w+p[sd]\s.*%[xyz]mm|v?p\w+\s.*%[xyz]mm|v?mov[audq]+\s.*%[xyz]mm"
    return bool(re.match(rf"{x86}|\w+(\.\d[sd])?\s+[vz]\d+\.", line))


def is_call(line):
    return bool(re.match(r"(callq?|blr?)\s", line))


@every_function
def test_float32_code_holds_no_double(name):
    if name in vmath.IN_DOUBLE:
        pytest.skip("computed in float64, as its documentation says")
    assert "double" not in accuracy.kernel(name, "float32").llvm().partition("define ")[2].partition("\n}")[0]


def waves(*names):
    """A loop that adds up some functions of one angle."""
    lines = ["x = angles[i]"]
    for name in names:
        lines += vmath.emit(name, "float64", ["x"], f"{name}_of_x")
    lines.append(f"out[i] = {' + '.join(f'{name}_of_x' for name in names)}")
    text = "def waves(angles, out):\n    for i in range(out.size):\n" + "".join(f"        {line}\n" for line in lines)
    signature = numba.void(Flat("float64"), Flat("float64", writable=True))
    return compile_source(text, "waves", signature, namespace=vmath.NAMESPACE, noalias=True)


def test_a_kernel_may_hold_several_functions_that_ask_libm_for_huge_angles():
    x = np.array([0.5, -3.0, 1e22, 100.0, 1e300, np.inf])
    got = np.empty_like(x)
    kernel = waves("sin", "cos", "tan")
    kernel.entry(x, got)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, np.sin(x) + np.cos(x) + np.tan(x), rtol=1e-14)
    # Once for each function and vector.
    assert any(sum(map(is_call, block)) == 3 for block in loops(own_assembly(kernel)) if any(map(is_packed, block)))


def arithmetic(*names):
    """How many packed floating-point operations the hot loop of `waves` has for a vector, at most."""
    operations = r"v?fn?m(add|sub)\d*p|v?(mul|add|sub)p|f(mla|mls|mul|add|sub)\b"
    blocks = loops(own_assembly(waves(*names)))
    return max(sum(bool(re.match(operations, line)) for line in block) for block in blocks)


def test_sine_and_cosine_of_one_angle_share_their_work():
    # Both polynomials are evaluated for either of them, and the reduction is the same.
    assert arithmetic("sin", "cos") < 0.7 * (arithmetic("sin") + arithmetic("cos"))


@pytest.mark.parametrize("name", ["exp", "log", "sin", "tanh", "erf", "power", "floor", "mod"])
@both_dtypes
def test_loops_are_vectorised_for_aarch64(name, dtype, monkeypatch):
    blocks = list(loops(assembly_for_aarch64(name, dtype, monkeypatch)))
    hot = [block for block in blocks if sum(map(is_packed, block)) >= 2]
    assert hot, "no loop of packed instructions"
    calls = [line for block in hot for line in block if is_call(line)]
    assert not calls or name in RARE
    assert not any(re.search(LIBM, line) for line in calls if "numbagrad." not in line)


def assembly_for_aarch64(name, dtype, monkeypatch):
    """What LLVM makes of a function's loop for that architecture, with the bodies that are not for x86."""
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple(AARCH64).create_target_machine(cpu="cortex-a72", opt=3)
    except RuntimeError:
        pytest.skip("this build of LLVM has no aarch64")
    module = llvm.parse_assembly(code_before_optimising(name, dtype, monkeypatch))
    module.triple, module.data_layout = AARCH64, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.slp_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    text = machine.emit_assembly(module)
    start = re.search(rf"^_ZN\S*{len(name)}{name}B\S*:", text, re.M).start()
    return text[start : start + text[start:].index(".cfi_endproc")]


AARCH64 = "aarch64-unknown-linux-gnu"


def code_before_optimising(name, dtype, monkeypatch):
    texts = []
    for module in (intrinsics, vmath_rare):
        monkeypatch.setattr(module, "is_x86", lambda codegen: False)
    monkeypatch.setattr(
        CPUCodeLibrary, "_optimize_final_module", lambda library: texts.append(str(library._final_module))
    )
    text, signature = accuracy.source(name, dtype)
    # Numba's own compiler, so that nothing of it is kept.
    scope = {"__name__": __name__, **vmath.NAMESPACE}
    exec(text, scope)
    numba.njit(signature, error_model="numpy", fastmath={"contract"})(scope[name])
    return next(text for text in texts if f"{name}" in text)


# ----- Text -----


@every_function
@both_dtypes
def test_names_begin_with_the_result(name, dtype):
    args = ["p", "q"][: accuracy.FUNCTIONS[name].arity]
    lines = vmath.emit(name, dtype, args, "out7")
    assigned = [line.partition(" = ")[0] for line in lines]
    assert assigned[-1] == "out7"
    assert all(re.fullmatch(r"out7(_\w+)?", variable) for variable in assigned)
    assert len(set(assigned)) == len(assigned)


def test_bodies_can_follow_one_another():
    lines = [
        "t = x[i]",
        *vmath.emit("exp", "float64", ["t"], "u"),
        *vmath.emit("exp", "float64", ["u"], "v"),
        "out[i] = v",
    ]
    source = "def twice(x, out):\n    for i in range(out.size):\n" + "".join(f"        {line}\n" for line in lines)
    signature = numba.void(Flat("float64"), Flat("float64", writable=True))
    x, got = np.linspace(-2, 1, 50), np.empty(50)
    compile_source(source, "twice", signature, namespace=vmath.NAMESPACE).entry(x, got)
    np.testing.assert_allclose(got, np.exp(np.exp(x)), rtol=1e-15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("exponential", "float32", ["x"], "y"), "no vector body for 'exponential'; there is one for absolute, arccos"),
        (("exp", "float16", ["x"], "y"), "float32 and float64, got 'float16'"),
        (("power", "float32", ["x"], "y"), "power takes 2 arguments, got 1: x"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        vmath.emit(*call)
