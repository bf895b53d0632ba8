/// The pipeline of candidates: generated and sent to the compile pool some way ahead of the one that
/// is being verified and measured.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <span>
#include <stop_token>

#include "search/arm.h"

namespace tilewright::search {

/// Progress of a tune, for the caller's hook.
class TuneClock {
 public:
  TuneClock(const TuneHooks& hooks, int total)
      : hooks_(hooks), total_(total), begin_(std::chrono::steady_clock::now()) {}
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  void set_total(int total) { total_ = total; }
  /// `known` before: it took no time, so that it says nothing of how long the rest will.
  void step(const std::string& current, double best_us, bool known = false);
  void show(const std::string& current, double best_us) const;

 private:
  const TuneHooks& hooks_;
  int total_ = 0, done_ = 0, known_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

/// One thread.
class CandidatePipeline {
 public:
  CandidatePipeline(const TuneRequest& request, jit::CompilePool& compiler, Measurer& measurer,
                    const TuneHooks& hooks, TuneClock& clock, std::stop_token stop);

  /// One evaluation of each arm listed, in that order; an arm without configs left is marked
  /// exhausted and costs nothing. Returns how many were evaluated: fewer when stopped() or exhausted.
  /// Errors: of the measurer.
  Result<int> run(std::span<Arm* const> order);

  /// The caller asked to stop, or the seconds are used up.
  bool stopped() const;

  /// Why the journal does not hold all trials; the first time that it failed.
  const std::optional<Error>& journal_failure() const { return journal_failure_; }

 private:
  struct Job {
    Arm* arm = nullptr;
    CandidateReport report;
    bool known = false;  ///< from the journal, or failed already: nothing to compile or run
    jit::Plan plan;
    Digest source;  ///< of the image to be compiled
    std::shared_future<Result<jit::Image>> image;
  };
  /// Of an arm with an anchor: the group as it was made there.
  struct AnchorCode {
    jit::Plan plan;
    std::shared_future<Result<jit::Image>> image;
    std::shared_ptr<const Trial::Anchor> made;
  };
  void prepare(Arm& arm);
  void note(const std::function<Result<void>(const CandidateReport&)>& hook,
            const CandidateReport& report);
  void note_written(Result<void> written);
  Trial trial_of(const Job& job) const;
  /// False when stopped before the image was there, or amid the trial.
  Result<bool> finish(Job& job);
  /// Fills in the job's report; the image is null if it did not compile.
  Result<std::shared_ptr<const jit::Image>> measure(Job& job);
  Result<void> begin_anchor(const Arm& arm);
  /// Null: the arm has none.
  Result<std::shared_ptr<const Trial::Anchor>> anchor_of(const Arm& arm);
  /// Of the next trial: many times what sound ones took, so that one that hangs does not take as
  /// long as one that is slow ever could.
  double deadline_s(const Arm& arm) const;

  const TuneRequest& request_;
  jit::CompilePool& compiler_;
  Measurer& measurer_;
  const TuneHooks& hooks_;
  TuneClock& clock_;
  std::stop_token stop_;
  std::optional<Error> journal_failure_;
  struct SoundTrials {
    int count = 0;
    double longest_s = 0;
  };
  std::map<const Arm*, SoundTrials> sound_;  ///< groups differ in what a trial of them takes
  std::map<Digest, AnchorCode> anchors_;     ///< by group
  std::deque<Job> jobs_;
};

/// Everything is compiled alike, so that an image of a candidate is the image of the plan.
jit::CompileOptions compile_options(const jit::DeviceInfo& device);

/// What a report says of a candidate's image: digest, resources, shared memory of `plan`'s launches.
void describe_image(CandidateReport& report, const jit::Image& image, const jit::Plan& plan);

/// Puts the image into all launches of a plan that was generated with it.
void set_image(jit::Plan& plan, const Digest& image);

}  // namespace tilewright::search
