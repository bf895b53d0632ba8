"""Kernels in the Triton language: those that every tutorial begins with, in our own words."""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, lda, ldb, ldc,
           TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """c[m, n] = a[m, k] b[k, n], row-major, in f16 with f32 accumulation."""
    tiles_n = tl.cdiv(n, TILE_N)
    row = (tl.program_id(0) // tiles_n) * TILE_M + tl.arange(0, TILE_M)
    column = (tl.program_id(0) % tiles_n) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    a_at = a + row[:, None] * lda + inner[None, :]
    b_at = b + inner[:, None] * ldb + column[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for start in range(0, k, TILE_K):
        left = k - start
        x = tl.load(a_at, mask=(row[:, None] < m) & (inner[None, :] < left), other=0.0)
        y = tl.load(b_at, mask=(inner[:, None] < left) & (column[None, :] < n), other=0.0)
        total = tl.dot(x, y, total)
        a_at += TILE_K
        b_at += TILE_K * ldb
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c + row[:, None] * ldc + column[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def descriptor_matmul(a, b, c, m, n, k,
                      TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """The same by tensor maps that the kernel makes: m, n and k need not be multiples of the tiles."""
    a_map = tl.make_tensor_descriptor(a, [m, k], [k, 1], [TILE_M, TILE_K])
    b_map = tl.make_tensor_descriptor(b, [k, n], [n, 1], [TILE_K, TILE_N])
    c_map = tl.make_tensor_descriptor(c, [m, n], [n, 1], [TILE_M, TILE_N])
    tiles_n = tl.cdiv(n, TILE_N)
    row = (tl.program_id(0) // tiles_n) * TILE_M
    column = (tl.program_id(0) % tiles_n) * TILE_N
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for start in range(0, k, TILE_K):
        total = tl.dot(a_map.load([row, start]), b_map.load([start, column]), total)
    c_map.store([row, column], total.to(tl.float16))


@triton.jit
def softmax(y, x, columns, BLOCK: tl.constexpr):
    """Of each row, in f32."""
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    values = tl.load(x + at, mask=inside, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def layer_norm(y, x, weight, bias, columns, epsilon, BLOCK: tl.constexpr):
    """Of each row, f16 in and out, the mean and the variance in f32."""
    row = tl.program_id(0) * columns
    mean_part = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean_part += tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(mean_part, axis=0) / columns
    square_part = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
        away = tl.where(at < columns, value - mean, 0.0)
        square_part += away * away
    scale = 1.0 / tl.sqrt(tl.sum(square_part, axis=0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row + at, ((value - mean) * scale * w + b).to(tl.float16), mask=inside)


@triton.jit
def attention(out, q, k, v, queries, keys, scale,
              TILE_Q: tl.constexpr, TILE_K: tl.constexpr, WIDTH: tl.constexpr,
              CAUSAL: tl.constexpr):
    """softmax(scale q k^T) v per head, without ever holding a row of it: a running maximum and sum.

    q, out: [heads, queries, WIDTH]; k, v: [heads, keys, WIDTH]; f16. Grid: tiles of queries, heads.
    """
    head = tl.program_id(1)
    row = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    lane = tl.arange(0, WIDTH)
    q_at = (head * queries + row)[:, None] * WIDTH + lane[None, :]
    q_tile = tl.load(q + q_at, mask=row[:, None] < queries, other=0.0)
    most = tl.full((TILE_Q,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((TILE_Q,), dtype=tl.float32)
    total = tl.zeros((TILE_Q, WIDTH), dtype=tl.float32)
    for start in range(0, keys, TILE_K):
        column = start + tl.arange(0, TILE_K)
        kv_at = (head * keys + column)[:, None] * WIDTH + lane[None, :]
        k_tile = tl.load(k + kv_at, mask=column[:, None] < keys, other=0.0)
        score = tl.dot(q_tile, tl.trans(k_tile)) * (scale * 1.4426950408889634)
        seen = column[None, :] < keys
        if CAUSAL:
            seen = seen & (column[None, :] <= row[:, None])
        score = tl.where(seen, score, float("-inf"))
        new_most = tl.maximum(most, tl.max(score, axis=1))
        power = tl.exp2(score - new_most[:, None])
        shrink = tl.exp2(most - new_most)
        weight = weight * shrink + tl.sum(power, axis=1)
        v_tile = tl.load(v + kv_at, mask=column[:, None] < keys, other=0.0)
        total = total * shrink[:, None]
        total = tl.dot(power.to(tl.float16), v_tile, total)
        most = new_most
    tl.store(out + q_at, (total / weight[:, None]).to(tl.float16), mask=row[:, None] < queries)
