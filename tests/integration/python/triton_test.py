"""PTX that Triton generates, launched through cuda-python on the virtual GPU, against numpy.

    triton_test.py ARCHITECTURE [SEEDS]    80, 89 or 90, each case in so many schedules of its warps
"""

import ctypes
import sys
import time

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_kernels
from vgpu import (download, driver, made, ok, parameters, release, reports, set_schedule, start,
                  upload)

INT, FLOAT = ctypes.c_int32, ctypes.c_float


class Kernel:
    """A kernel of triton_kernels, compiled and loaded. `types`: of the parameters that are not
    constants; a trailing '!' says that the value is a multiple of 16, as Triton would find out."""

    def __init__(self, architecture, name, types, constants, warps=4, stages=2):
        function = getattr(triton_kernels, name)
        names = [n for n in function.arg_names if n not in constants]
        signature = {n: t.rstrip("!") for n, t in zip(names, types, strict=True)}
        signature.update({n: "constexpr" for n in constants})
        aligned = {(function.arg_names.index(n),): [["tt.divisibility", 16]]
                   for n, t in zip(names, types) if t.endswith("!")}
        source = ASTSource(function, signature, constexprs=constants, attrs=aligned)
        compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32),
                                  options={"num_warps": warps, "num_stages": stages})
        self.ptx = compiled.asm["ptx"]
        self.threads = 32 * warps
        self.scratch = getattr(compiled.metadata, "global_scratch_size", 0) or 0
        self.shared = compiled.metadata.shared
        self.module = made(driver.cuModuleUnload,
                           ok(driver.cuModuleLoadData(self.ptx.encode() + b"\0")))
        self.function = ok(driver.cuModuleGetFunction(self.module, name.encode()))
        if self.shared > 48 << 10:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ok(driver.cuFuncSetAttribute(self.function, attribute, self.shared))

    def __call__(self, grid, *values):
        # Triton's own launchers append two pointers to scratch memory: of every block, for what the
        # kernel keeps there (tensor maps), and for a profiler.
        scratch = (upload(np.full(self.scratch * int(np.prod(grid)), 0xa5, np.uint8))
                   if self.scratch else 0)
        packed = parameters(*values, scratch, 0)
        ok(driver.cuLaunchKernel(self.function, *grid, self.threads, 1, 1, self.shared, 0,
                                 ctypes.addressof(packed), 0))
        ok(driver.cuCtxSynchronize())


def close(actual, expected, tolerance, what):
    worst = np.max(np.abs(actual.astype(np.float64) - expected))
    if not worst <= tolerance:
        raise AssertionError(f"{what}: differs by {worst}, expected at most {tolerance}")


def numbers(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def check_matmul(architecture, tile, stages, warps, m, n, k):
    aligned = "!" if k % 16 == 0 and n % 16 == 0 else ""
    tile_m, tile_n, tile_k = tile
    kernel = Kernel(architecture, "matmul",
                    ["*fp16!"] * 3 + ["i32"] + ["i32" + aligned] * 5,
                    {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k}, warps, stages)
    a, b = numbers(m, k, seed=1), numbers(k, n, seed=2)
    c = upload(np.full((m, n), 7, np.float16))
    grid = (-(-m // tile_m) * -(-n // tile_n), 1, 1)
    kernel(grid, upload(a), upload(b), c, INT(m), INT(n), INT(k), INT(k), INT(n), INT(n))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    close(download(c, (m, n), np.float16), expected, 1e-3 * np.max(np.abs(expected)),
          f"matmul {tile} {stages} stages {m}x{n}x{k}")


def check_descriptor_matmul(architecture, tile, stages, warps, m, n, k):
    if architecture < 90:
        return  # tensor maps are of sm_90 and above
    tile_m, tile_n, tile_k = tile
    kernel = Kernel(architecture, "descriptor_matmul", ["*fp16!"] * 3 + ["i32!"] * 3,
                    {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k}, warps, stages)
    for expected in ("tensormap.replace", "tensormap.cp_fenceproxy", "cp.async.bulk.tensor"):
        if expected not in kernel.ptx:
            raise AssertionError(f"Triton made no {expected}")
    a, b = numbers(m, k, seed=10), numbers(k, n, seed=11)
    c = upload(np.full((m, n), 7, np.float16))
    grid = (-(-m // tile_m) * -(-n // tile_n), 1, 1)
    kernel(grid, upload(a), upload(b), c, INT(m), INT(n), INT(k))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    close(download(c, (m, n), np.float16), expected, 1e-3 * np.max(np.abs(expected)),
          f"matmul by tensor maps {tile} {stages} stages {m}x{n}x{k}")


def check_softmax(architecture, rows, columns):
    kernel = Kernel(architecture, "softmax", ["*fp32!", "*fp32!", "i32"],
                    {"BLOCK": triton.next_power_of_2(columns)})
    x = numbers(rows, columns, seed=3).astype(np.float32) * 3
    y = upload(np.zeros_like(x))
    kernel((rows, 1, 1), y, upload(x), INT(columns))
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    close(download(y, x.shape, np.float32), powers / powers.sum(axis=1, keepdims=True), 1e-6,
          f"softmax {rows}x{columns}")


def check_layer_norm(architecture, rows, columns):
    kernel = Kernel(architecture, "layer_norm", ["*fp16!"] * 4 + ["i32", "fp32"], {"BLOCK": 256})
    x, weight, bias = (numbers(rows, columns, seed=4), numbers(columns, seed=5),
                       numbers(columns, seed=6))
    y = upload(np.zeros_like(x))
    kernel((rows, 1, 1), y, upload(x), upload(weight), upload(bias), INT(columns), FLOAT(1e-5))
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(axis=1, keepdims=True)) / np.sqrt(
        wide.var(axis=1, keepdims=True) + 1e-5) * weight + bias
    close(download(y, x.shape, np.float16), expected, 1e-3 * np.max(np.abs(expected)),
          f"layer norm {rows}x{columns}")


def check_attention(architecture, heads, queries, keys, width, causal, stages):
    kernel = Kernel(architecture, "attention", ["*fp16!"] * 4 + ["i32", "i32", "fp32"],
                    {"TILE_Q": 64, "TILE_K": 32, "WIDTH": width, "CAUSAL": causal}, 4, stages)
    q, k, v = (numbers(heads, queries, width, seed=7), numbers(heads, keys, width, seed=8),
               numbers(heads, keys, width, seed=9))
    out = upload(np.zeros_like(q))
    scale = width**-0.5
    kernel((-(-queries // 64), heads, 1), out, upload(q), upload(k), upload(v), INT(queries),
           INT(keys), FLOAT(scale))
    score = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * scale
    if causal:
        score[:, np.arange(keys)[None, :] > np.arange(queries)[:, None]] = -np.inf
    power = np.exp(score - score.max(axis=2, keepdims=True))
    expected = np.einsum("hqk,hkd->hqd", power / power.sum(axis=2, keepdims=True),
                         v.astype(np.float64))
    close(download(out, q.shape, np.float16), expected, 4e-3,
          f"attention {heads}x{queries}x{keys}x{width} causal {causal}")


CASES = {
    "matmul": (check_matmul, [
        ((64, 64, 32), 3, 4, 128, 128, 96),
        ((128, 64, 32), 2, 4, 128, 64, 64),
        ((32, 32, 64), 4, 2, 61, 45, 200),
        ((64, 128, 64), 3, 8, 100, 136, 128),
        ((16, 16, 16), 1, 1, 33, 17, 19),
    ]),
    "descriptor_matmul": (check_descriptor_matmul, [
        ((64, 64, 32), 3, 4, 128, 128, 96),
        ((64, 128, 64), 2, 4, 112, 144, 80),
        ((128, 64, 64), 3, 8, 128, 64, 128),
    ]),
    "softmax": (check_softmax, [(3, 1024), (5, 781), (2, 33)]),
    "layer_norm": (check_layer_norm, [(3, 512), (2, 777), (1, 48)]),
    "attention": (check_attention, [
        (2, 64, 128, 64, False, 2),
        (1, 75, 75, 64, True, 3),
        (1, 33, 101, 32, False, 1),
    ]),
}


def failure_of(check, architecture, case):
    """None, or what is wrong."""
    try:
        check(architecture, *case)
        release()
        found = reports()
        return "\n".join(each["text"] for each in found) or None
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    architecture, seeds = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    device = start()
    failed = 0
    for seed in range(seeds):
        set_schedule(seed)
        for name, (check, cases) in CASES.items():
            for case in cases:
                began = time.time()
                wrong = failure_of(check, architecture, case)
                failed += wrong is not None
                print(f"sm_{architecture} seed {seed} {name} {case}: "
                      f"{'FAILED: ' + wrong if wrong else 'ok'} ({time.time() - began:.2f} s)",
                      flush=True)
    ok(driver.cuDevicePrimaryCtxRelease(device))
    for leak in reports():
        failed += 1
        print(leak["text"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
