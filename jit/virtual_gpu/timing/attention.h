/// Attention that cannot run here, a library's: described as FlashAttention-2 and -3 schedule it,
/// and not executed. Keys and values are paged.
#pragma once

#include "jit/virtual_gpu/timing/model.h"

namespace tilewright::vgpu {

struct AttentionProblem {
  double batch = 1;
  double q_len = 1, kv_len = 1;  ///< of each sequence; the last q_len of kv_len positions ask
  double q_heads = 1, kv_heads = 1;
  double head_dim = 128;
  double window = 0;    ///< 0: none
  double kv_bytes = 2;  ///< of an element: 1 for fp8
};

/// One query of each sequence. A block serves all query heads of a kv head; its keys are split among
/// blocks where that pays.
LaunchTime best_decode(const jit::DeviceDescription& device, const AttentionProblem& problem);

/// Causal; blocks of 128 queries, longest first. With kv_len > q_len it is a chunk of a prefill.
LaunchTime prefill(const jit::DeviceDescription& device, const AttentionProblem& problem);

Work decode_work(const jit::DeviceDescription& device, const AttentionProblem& problem, int splits);
Work prefill_work(const jit::DeviceDescription& device, const AttentionProblem& problem);

}  // namespace tilewright::vgpu
