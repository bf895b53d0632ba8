// %tid.x and its like.
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {

int Lowering::special_register(std::string_view name, Type type) {
  struct Named {
    std::string_view name;
    Special special;
  };
  static constexpr Named kNamed[] = {
      {"%tid.x", Special::kTidX},
      {"%tid.y", Special::kTidY},
      {"%tid.z", Special::kTidZ},
      {"%ntid.x", Special::kNtidX},
      {"%ntid.y", Special::kNtidY},
      {"%ntid.z", Special::kNtidZ},
      {"%ctaid.x", Special::kCtaidX},
      {"%ctaid.y", Special::kCtaidY},
      {"%ctaid.z", Special::kCtaidZ},
      {"%nctaid.x", Special::kNctaidX},
      {"%nctaid.y", Special::kNctaidY},
      {"%nctaid.z", Special::kNctaidZ},
      {"%laneid", Special::kLaneId},
      {"%warpid", Special::kWarpId},
      {"%nwarpid", Special::kNwarpId},
      {"%lanemask_eq", Special::kLanemaskEq},
      {"%lanemask_le", Special::kLanemaskLe},
      {"%lanemask_lt", Special::kLanemaskLt},
      {"%lanemask_ge", Special::kLanemaskGe},
      {"%lanemask_gt", Special::kLanemaskGt},
      {"%dynamic_smem_size", Special::kDynamicSmemSize},
      {"%total_smem_size", Special::kTotalSmemSize},
      {"%aggr_smem_size", Special::kTotalSmemSize},
      {"%gridid", Special::kGridId},
      {"%smid", Special::kZero},
      {"%nsmid", Special::kOne},
      {"%clusterid.x", Special::kClusterIdX},
      {"%clusterid.y", Special::kClusterIdY},
      {"%clusterid.z", Special::kClusterIdZ},
      {"%nclusterid.x", Special::kNclusterIdX},
      {"%nclusterid.y", Special::kNclusterIdY},
      {"%nclusterid.z", Special::kNclusterIdZ},
      {"%cluster_ctaid.x", Special::kClusterCtaidX},
      {"%cluster_ctaid.y", Special::kClusterCtaidY},
      {"%cluster_ctaid.z", Special::kClusterCtaidZ},
      {"%cluster_nctaid.x", Special::kClusterNctaidX},
      {"%cluster_nctaid.y", Special::kClusterNctaidY},
      {"%cluster_nctaid.z", Special::kClusterNctaidZ},
      {"%cluster_ctarank", Special::kClusterCtarank},
      {"%cluster_nctarank", Special::kClusterNctarank},
      {"%is_explicit_cluster", Special::kIsExplicitCluster},
  };
  Width width = width_of(ptx::size_of(type));
  for (const auto& named : kNamed)
    if (named.name == name) return special(width, named.special);
  if (name == "%envreg1") return special(width, Special::kGridWorkspaceHigh);
  if (name == "%envreg2") return special(width, Special::kGridWorkspaceLow);
  // Of performance monitors, graphs and drivers: nothing here counts or sets them.
  for (std::string_view unused : {"%pm", "%envreg", "%current_graph_exec"})
    if (name.starts_with(unused)) return special(width, Special::kZero);
  if (reserved_shared_ >= 0) {
    constexpr std::pair<std::string_view, int> kReserved[] = {
        {"%reserved_smem_offset_begin", 0},
        {"%reserved_smem_offset_end", kReservedSharedBytes},
        {"%reserved_smem_offset_0", 0},
        {"%reserved_smem_offset_1", kReservedSharedBytes / 2}};
    for (auto [reserved, offset] : kReserved)
      if (reserved == name)
        return constant(width, static_cast<std::uint64_t>(reserved_shared_ + offset));
    if (name == "%reserved_smem_offset_cap") return constant(width, kReservedSharedBytes);
  }
  constexpr std::string_view kClocks[] = {"%clock",       "%clock_hi",       "%clock64",
                                          "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"};
  for (std::size_t i = 0; i < std::size(kClocks); ++i) {
    if (kClocks[i] != name) continue;
    int value = temporary(width);
    emit_auxiliary({.op = Op::kClock, .type = type, .mode = static_cast<std::uint8_t>(i)}, {value},
                   {});
    return value;
  }
  unsupported(fmt::format("special register {} is not supported", name));
}

}  // namespace tilewright::vgpu
