/// What the handlers of tensor instructions share, built once: declarations only, since handlers
/// for several instruction sets call it.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/execute/state.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/tensor_form.h"

namespace tilewright::vgpu {

/// Tiles of one step, as floats. a: [k block][part][row half][4g + q]; b: [k][column parity][q]
/// (columns 2q and 2q + 1), k in the order of the matrix; acc: [row half][column parity][4g + q].
inline constexpr int kMaxTileK = 64;
struct TensorTile {
  alignas(64) float a[kMaxTileK * 16];
  alignas(64) float b[kMaxTileK * 8];
  alignas(64) float acc[2 * 2 * 32];
};

/// All 32 lanes execute the step together. True: they do. False: the split waits for the others and
/// the handler returns `next`, or the warp has faulted (null).
bool whole_warp(const Step* step, Warp& warp, const Step** next);

/// acc += a b in another way than f32 in the order of k: see Accumulation.
void accumulate_otherwise(Accumulation how, const TensorForm& form, TensorTile& tile);

}  // namespace tilewright::vgpu
