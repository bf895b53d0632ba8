/// Faults on request: which launches fault, hang, lie or slow down, and how clocks and noise change
/// modelled times. Pure decisions, drawn from a seed; operation.cpp carries them out.
///
/// A text of rules, one a line or separated by ';'; # begins a comment:
///
///   seed 7
///   launch 3 fault                 the third launch of the process
///   launch gemm* hang              every launch of a kernel whose name matches
///   launch gemm*:2 corrupt         the second of them
///   launch 5+ slow 1.5             the fifth and all after it
///   launch 4 out-of-memory
///   launch 9 lost                  the device is lost, for the rest of the process
///   modules 0.03 hang              every launch of a kernel of 3 in 100 modules, chosen by their
///                                  text; rules of this kind choose different ones
///   clock 100 0.8                  from the 100th launch on, clocks are 0.8 of what they were
///   throttle 200 0.25 0.6          of every 200 launches, the last quarter at 0.6 of the clocks
///   noise 0.02                     times are multiplied by e^(0.02 x normal)
///   drift 0.9 0.01                 and by e^d, where d = 0.9 d + 0.01 x normal from launch to launch
///   outliers 0.01 3                one in a hundred takes three times as long
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/result.h"

namespace tilewright::vgpu {

enum class FaultAction : std::uint8_t {
  kNone,
  kFault,
  kHang,
  kCorrupt,
  kOutOfMemory,
  kLost,
  kCrash
};

class Faults {
 public:
  /// Errors: kInvalidArgument names the rule, the value seen and the value wanted.
  static Result<Faults> parse(std::string_view text);
  /// $TILEWRIGHT_VGPU_FAULTS: the name of a file, else the rules themselves. No variable, no faults.
  static Result<Faults> from_environment();

  bool any() const { return any_; }
  /// Whether two launches of the same work may take different times.
  bool vary_times() const;

  /// What happens to the next launch, and how its time changes. Counts it.
  struct Decision {
    FaultAction action = FaultAction::kNone;
    double time_factor = 1;   ///< of slow rules, clocks, noise
    double clock_factor = 1;  ///< of full clocks: what NVML would tell
    bool throttled = false;
    std::uint64_t launch = 0;  ///< from 1
    std::uint64_t random = 0;  ///< to choose what is corrupted
  };
  Decision next(std::string_view kernel, const void* module = nullptr);

  /// Notes the text of a module that launches will name.
  void loaded(const void* module, std::string_view text);
  /// Where a module of this text lies in [0, 1): the first rule of modules has the lowest ones.
  static double place_of(std::string_view text);

 private:
  struct Rule {
    std::string pattern = "*";
    std::uint64_t first = 0, last = 0;  ///< launches, or launches of the pattern; 0: all
    FaultAction action = FaultAction::kNone;
    double factor = 1;
    std::uint64_t seen = 0;
    double first_place = 0, last_place = 0;  ///< of modules: a part of [0, 1)
    double sigma = 0;                        ///< noise of its own
  };
  Result<void> set_action(const std::vector<std::string>& words, const std::string& whole,
                          Rule& rule);
  Result<void> add_modules_rule(const std::vector<std::string>& words);
  bool matches(const Rule& rule, const std::string& kernel, const void* module) const;
  struct Clock {
    std::uint64_t from = 0;
    double factor = 1;
  };
  Result<void> add_rule(const std::vector<std::string>& words);
  Result<void> add(const std::string& text);
  std::uint64_t random();
  double normal();

  bool any_ = false;
  std::vector<Rule> rules_;
  std::unordered_map<const void*, double> places_;
  double next_place_ = 0;
  std::vector<Clock> clocks_;
  std::uint64_t throttle_period_ = 0;
  double throttle_share_ = 0, throttle_factor_ = 1;
  double sigma_ = 0, drift_keep_ = 0, drift_sigma_ = 0, drift_ = 0;
  double outlier_share_ = 0, outlier_factor_ = 1;
  std::uint64_t state_ = 1, launches_ = 0;
};

}  // namespace tilewright::vgpu
