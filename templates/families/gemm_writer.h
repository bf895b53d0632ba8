/// Writes the source (gemm_source.cpp) and the launch rules (gemm_plan.cpp) of a matrix product.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "templates/families/gemm_problem.h"
#include "templates/families/group_code.h"

namespace tilewright::templates {

class GemmWriter {
 public:
  /// `initializer`: the config as device code.
  GemmWriter(const Operator& group, GemmProblem problem, const Config& config,
             std::string initializer);

  Result<Generated> generate(std::string_view family, std::string_view header);

 private:
  std::int64_t tunable(const char* name) const { return config_.at(name); }
  int products() const { return static_cast<int>(problem_.b.size()); }
  /// Elements per access of an operand's rows.
  int vector_a() const { return vector_of(problem_.a); }
  int vector_b() const;
  int vector_of(const MatrixOperand& operand) const;
  bool asynchronous() const;
  bool whole(const Extent& extent, const char* tile) const;
  int threads() const;
  int shared_bytes() const;

  std::vector<GeneratedParameter> matrix_parameters() const;  ///< A, then each B, each once
  std::vector<GeneratedParameter> first_parameters() const;   ///< of the kernel that multiplies
  std::vector<GeneratedParameter> finish_parameters() const;  ///< of the one that adds the parts

  std::string source(std::string_view header);
  void write_facts(Code& code) const;
  void write_operands(Code& code) const;
  std::string operand_base(const MatrixOperand& operand, const std::string& name,
                           const std::vector<std::string>& batch) const;

  Result<jit::Plan> plan();
  std::vector<std::string> alignment_predicates() const;
  std::string grid(std::int64_t block_m, std::int64_t block_n) const;
  std::optional<std::int64_t> blocks(std::int64_t block_m, std::int64_t block_n) const;
  jit::PlanLaunch first_launch() const;
  jit::PlanLaunch finish_launch() const;
  std::array<std::string, 4> tile() const;
  std::string workspace_bytes() const;

  const Operator& group_;
  GemmProblem problem_;
  const Config& config_;
  std::string initializer_;
  GroupCode code_;
  std::vector<std::string> matrix_names_;  ///< of A, then of each B, in code
  std::string kernel_, finish_kernel_;
};

}  // namespace tilewright::templates
