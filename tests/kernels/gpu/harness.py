"""Triton kernels without a GPU: run in Triton's interpreter, and compiled ahead of time for the processors named."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interrupts import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
PROCESSORS = (80, 90)  # compute capabilities times ten: A100, H100 and H200
WARP = 32


# NumPy deprecates what the interpreter of Triton 3.6 does.
QUIET = "-W", "ignore::DeprecationWarning:triton.runtime.interpreter"
OPTIONS = "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *QUIET


def interpreted(*arguments: str, timeout_s: float = PATIENCE_S) -> str:
    """Run `python *arguments` in a process in which every kernel is interpreted on CPU tensors; gives what it prints.

    The switch must be set before a kernel is imported, hence the process. ("-m", "pytest", FILE) runs a file of tests,
    ("-c", CODE) a snippet. Raises AssertionError with the output where it fails or takes longer than `timeout_s`.
    """
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=env, timeout=timeout_s, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as e:
        output = e.stdout if isinstance(e.stdout, str) else (e.stdout or b"").decode()
        raise AssertionError(f"still running after {timeout_s} s:\n{output}") from None
    assert done.returncode == 0, done.stdout
    return done.stdout


def interpreted_tests(*files: str, marked: str = "not long", timeout_s: float = PATIENCE_S) -> str:
    """Run files of tests, those so marked, as `interpreted` does; some must pass, none be skipped."""
    report = interpreted("-m", "pytest", *OPTIONS, "-m", marked, *files, timeout_s=timeout_s)
    assert " passed" in report and "skipped" not in report, report
    return report


def run_on_pretended_gpu(*arguments: str, timeout_s: float = PATIENCE_S) -> str:
    """Run tests of tests/gpu where there is no GPU (see pretended_gpu.py); gives what pytest prints."""
    return interpreted(
        "-m", "pytest", *OPTIONS, "-p", "tests.kernels.gpu.pretended_gpu", *arguments, timeout_s=timeout_s
    )


def crossed(first, second) -> list:
    """(processor, variant) so that each is compiled once; the rest of the product is long."""
    pairs = [(PROCESSORS[0], first), (PROCESSORS[1], second), (PROCESSORS[0], second), (PROCESSORS[1], first)]
    return [*pairs[:2], *(pytest.param(*pair, marks=pytest.mark.long) for pair in pairs[2:])]


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class OnGpu:
    """Functions of a module, given and giving CPU tensors; where kernels are not interpreted they run on the GPU."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        function = getattr(self.module, name)
        if INTERPRETED:
            return function
        return lambda *arguments: moved(function(*moved(arguments, "cuda")), "cpu")


def moved(value, device: str):
    """Tensors in nested tuples on a device, laid out in memory as they were."""
    import torch

    if isinstance(value, tuple | list):
        return tuple(moved(one, device) for one in value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    whole = torch.empty(0, dtype=value.dtype, device=value.device).set_(value.untyped_storage()).to(device)
    return whole.as_strided(value.shape, value.stride(), value.storage_offset())


@dataclass(frozen=True)
class Compiled:
    """A kernel for one processor."""

    asm: dict[str, str | bytes]

    @property
    def ptx(self) -> str:
        return self.asm["ptx"]

    @property
    def sass(self) -> str:
        """The machine code, disassembled."""
        return self.asm["sass"]

    @property
    def instructions(self) -> set[str]:
        """The PTX instructions used, with their types: {"add.rn.f32", ...}."""
        words = (line.split() for line in self.ptx.splitlines() if line.startswith("\t") and not line.startswith("\t."))
        return {next((w for w in row if not w.startswith("@")), "") for row in words if row}

    @property
    def fused(self) -> list[str]:
        """Fused multiply-adds of floats, in PTX or machine code; those inside a division rounded as IEEE 754 says
        are part of it, so `sass` of a kernel that divides is not looked at."""
        in_ptx = sorted(i for i in self.instructions if i.startswith(("fma.", "mad.rn.f", "mad.f")))
        divides = any(i.startswith(("div.", "sqrt.", "rcp.", "ex2.")) for i in self.instructions)
        return in_ptx or ([] if divides else sorted({w for w in self.sass.split() if w.startswith(("FFMA", "DFMA"))}))

    @property
    def spills(self) -> bool:
        """Whether registers are kept in memory."""
        return any(w.startswith(("STL", "LDL")) for w in self.sass.split())

    def count_in_loop(self, *kinds: str) -> int:
        """Number of machine instructions whose names start so, in the loop over time: the longest one of the code."""
        lines, first, loop = self.sass.splitlines(), {}, []
        for k, line in enumerate(lines):
            if label := re.match(r"(L\w+):", line):
                first[label[1]] = k
            if (jump := re.search(r"\bBRA .*?(L\w+);", line)) and k - first.get(jump[1], k) > len(loop):
                loop = lines[first[jump[1]] : k]
        assert loop, "no loop in the machine code"
        return sum(word.startswith(kinds) for line in loop for word in line.split())


def compiled(kernel, types: dict[str, str], constants: dict, processor: int, warps: int = 4, **options) -> Compiled:
    """A @triton.jit kernel for a processor of `PROCESSORS`, without a GPU.

    types: of the arguments that are not constants, as Triton writes them ("*fp32", "*i8", "i32", "fp64"); pointers
    count as aligned to 16 bytes. constants: values of the tl.constexpr arguments. options: those of a launch
    (num_stages, ...); multiplications and additions are not fused unless enable_fp_fusion=True.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    assert set(names) == types.keys() | constants.keys(), set(names) ^ (types.keys() | constants.keys())
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = {(k,): [["tt.divisibility", 16]] for k, name in enumerate(names) if signature[name].startswith("*")}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": warps, "enable_fp_fusion": False, **options}
    built = triton.compile(source, target=GPUTarget("cuda", processor, WARP), options=options)
    return Compiled(built.asm)


@contextmanager
def compiled_launches(processor: int) -> Iterator[list[Compiled]]:
    """Compile every kernel that is launched meanwhile, for exactly the arguments that it is launched with.

    The list is filled with them in turn. Nothing is run: outputs are not written.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    target, built = GPUTarget("cuda", processor, WARP), []

    def launch(kernel, *arguments, grid, warmup, **options):
        options |= {"debug": False, "instrumentation_mode": ""}
        backend = make_backend(target)
        binder = create_function_from_signature(kernel.signature, kernel.params, backend)
        parsed, signature, constants, aligned = kernel._pack_args(backend, options, *binder(*arguments, **options))
        source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
        built.append(Compiled(triton.compile(source, target=target, options=vars(parsed)).asm))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", launch)
        yield built


def key(kernel, *arguments, **options) -> tuple:
    """What a launch with these arguments is compiled for: launches of one key share their code."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    backend = make_backend(GPUTarget("cuda", PROCESSORS[-1], WARP))
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    _, specialization, rest = binder(*arguments, **options)
    return kernel, *specialization, *sorted(rest.items())


def is_whole(instruction: str) -> bool:
    return not any(kind in instruction for kind in (".f16", ".f32", ".f64", ".bf16", "fma"))
