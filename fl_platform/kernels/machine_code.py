"""Machine code of kernels: compiled by numba once for each version of their sources and each processor, then kept.

It lies in the user's cache as object files, which llvmlite loads in a few hundredths of a second; numba is imported
only where something has to be compiled. A file's name says what it was made from, and a damaged file is made again.
"""

import ctypes
import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import platformdirs

from fl_platform.runs.writing import write_atomically

ARGUMENTS: dict[str, Any] = {"n": ctypes.c_int64, "x": ctypes.c_double}
"""Integers, which may be addresses, and numbers."""

ENTRIES: dict[str, dict[str, str]] = {
    "compiled_active_set": {"solve": "n" * 8 + "xx"},
    "compiled_dropout": {
        f"{way}_{kind}": arguments
        for way, arguments in (("forward", "n" * 7 + "x"), ("backward", "nnnnx"))
        for kind in ("float32", "bfloat16")
    },
    "compiled_linear": {"forward": "n" * 7, "backward": "n" * 8},
    "compiled_perceptron": {"train": "n" * 14 + "x"},
    "compiled_scores": {"scores": "n" * 13},
    "compiled_worker": {"train_workers": "nnnnx", "train_projected_workers": "n" * 6 + "xx"},
    "compiled_pooling": {
        f"{way}_{kind}": "n" * 8 for way in ("forward", "backward") for kind in ("float32", "bfloat16")
    },
    "compiled_products": {"row_products": "n" * 9},
    "compiled_projection": {
        "project_float32": "n" * 8 + "x",
        "project_float64": "n" * 8 + "x",
        "solve_all": "nnnx",
    },
}
"""Module -> compiled function -> a letter of ``ARGUMENTS`` for each of its arguments."""

WITH_AVX512: dict[str, dict[str, dict[str, str]]] = {
    kind: {
        "compiled_convolution": {f"forward_{kind}": "n" * 16},
        "compiled_convolution_gradient": {f"of_weight_{kind}": "n" * 17, f"of_images_{kind}": "n" * 15},
    }
    for kind in ("float32", "bfloat16")
}
"""The same for processors with AVX-512, by the type of the products: bfloat16 takes AVX512-BF16."""

CALLED = ("expf", "fmaf", "logf", "memcpy", "memmove", "memset", "sqrt", "sqrtf")
"""Functions of C that kernels may call; nothing of numba's or Python's."""

HOW: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
"""numba's options: IEEE arithmetic without exceptions, no memory of its own, nothing that calls Python."""

_ENGINES: list[Any] = []  # which own the machine code that is loaded


def lanes() -> int:
    """Floats of a vector register that kernels are written for: 16 with AVX-512, 8 with AVX2, else 4."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl"):
        return 16
    return 8 if features.get("avx2") and features.get("fma") else 4


def multiplies_bfloat16() -> bool:
    """Tell whether the processor has AVX512-BF16."""
    features = llvm.get_host_cpu_features()
    return lanes() == 16 and bool(features.get("avx512bw") and features.get("avx512bf16"))


LANES = lanes()
HAS_BFLOAT16 = multiplies_bfloat16()
for _kind, _is_there in (("float32", LANES == 16), ("bfloat16", HAS_BFLOAT16)):
    for _module, _functions in WITH_AVX512[_kind].items() if _is_there else ():
        ENTRIES.setdefault(_module, {}).update(_functions)


@cache
def function(module: str, name: str) -> Callable[..., None]:
    """Return a function of ``ENTRIES`` as machine code; it runs without Python's lock.

    Whoever wants the compiler's time left out of a measurement asks for the function before.
    """
    arguments, kept = ENTRIES[module][name], kept_code(module, name)
    if kept is None:
        if sys.stderr.isatty():
            print(f"compiling {module}.{name} for this processor, once: some seconds", file=sys.stderr)
        kept = compiled_and_kept(module, name)
    symbol, code = kept
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    kinds = [ctypes.c_void_p] * 2 + [ARGUMENTS[letter] for letter in arguments]
    compiled = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(engine.get_function_address(symbol))
    returned, raised = ctypes.c_void_p(), ctypes.c_void_p()  # what numba's functions write: nothing, and nothing
    _ENGINES.append((returned, raised))
    return partial(compiled, ctypes.addressof(returned), ctypes.addressof(raised))


def kept_code(module: str, name: str) -> tuple[str, bytes] | None:
    """The symbol and object file of a function of ``ENTRIES``, where they are kept."""
    place = _place(module, name)
    return None if place is None else read(place)


def compiled_and_kept(module: str, name: str) -> tuple[str, bytes]:
    """The same, compiled, and kept for other processes where that is possible."""
    made, place = compile_function(f"{__package__}.{module}", name, ENTRIES[module][name]), _place(module, name)
    if place is not None:
        keep(place, *made)
    return made


def compile_function(module: str, name: str, arguments: str) -> tuple[str, bytes]:
    """The symbol and object file of a function."""
    import numba  # takes a quarter of a second

    config: Any = numba.config
    is_disabled, config.DISABLE_JIT = config.DISABLE_JIT, 0  # NUMBA_DISABLE_JIT is for code that runs without, too
    try:
        plain = getattr(importlib.import_module(module), name)
        made: Any = numba.njit(signature(arguments), **HOW)(plain)
    finally:
        config.DISABLE_JIT = is_disabled
    [(text, overload)] = zip(made.inspect_llvm().values(), made.overloads.values(), strict=True)
    assembly = llvm.parse_assembly(text)
    called = {one.name for one in assembly.functions if one.is_declaration} - set(CALLED)
    if others := sorted(name for name in called if not name.startswith("llvm.")):
        raise RuntimeError(f"{module}.{name} calls {', '.join(others)}; compiled kernels may call {', '.join(CALLED)}")
    return overload.fndesc.llvm_func_name, _machine().emit_object(assembly)


def signature(arguments: str) -> Any:
    """The type of a function that takes these arguments and returns nothing."""
    import numba

    types = {"n": numba.intp, "x": numba.float64}
    return numba.void(*(types[letter] for letter in arguments))


def read(place: Path) -> tuple[str, bytes] | None:
    """What ``keep`` wrote; None where there is nothing, or not all of it."""
    try:
        head, code = place.read_bytes().split(b"\n", 1)
        told = json.loads(head)
        return (told["symbol"], code) if told["sha256"] == hashlib.sha256(code).hexdigest() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(place: Path, symbol: str, code: bytes) -> None:
    """Write a function's object file for other processes, where that is possible."""
    head = json.dumps({"symbol": symbol, "sha256": hashlib.sha256(code).hexdigest()})
    try:
        write_atomically(place, head.encode() + b"\n" + code)
    except OSError:
        return  # a full or read-only disk: the next process compiles again


def _place(module: str, name: str) -> Path | None:
    kept = directory()
    return None if kept is None else kept / f"{module}.{name}.o"


@cache
def directory() -> Path | None:
    """Where machine code of these sources for this processor is kept; None without a user's cache."""
    package = Path(__file__).parents[1]
    made_from = [
        version("numba"),
        version("llvmlite"),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    digest = hashlib.sha256("\n".join(made_from).encode())
    for source in sorted([*(package / "kernels").glob("*.py"), *(package / "qp").glob("*.py")]):
        digest.update(source.read_bytes())
    try:
        return Path(platformdirs.user_cache_dir("fl_platform")) / "compiled" / digest.hexdigest()[:24]
    except RuntimeError:  # no home directory
        return None


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    process = ctypes.CDLL(None)
    for name in CALLED:
        llvm.add_symbol(name, ctypes.cast(getattr(process, name), ctypes.c_void_p).value)
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="jitdefault"
    )
