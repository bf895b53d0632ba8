/// The input data of a problem: on the host, and on the device while it is there.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "jit/driver.h"
#include "jit/lazy_memory.h"
#include "search/verify/device_budget.h"
#include "search/verify/host_budget.h"
#include "search/verify/needs.h"
#include "search/verify/problem.h"
#include "templates/operator/evaluate.h"

namespace tilewright::search {

using Buffers = std::vector<CountedBuffer>;

/// What the data may take.
struct Memory {
  HostBudget& host;
  DeviceBudget& device;
};

/// "inputs of operator 'swiglu'".
std::string subject(const char* what, const templates::Operator& op);

class Inputs {
 public:
  /// Elements [begin, end) of a row of an input, in its dtype, as TestData::part.
  using Source = std::function<void(std::size_t input, std::int64_t row, std::int64_t begin,
                                    std::int64_t end, void* out)>;
  using Sources = std::function<Source(DataKind kind)>;

  /// All are kept by reference but `sources`.
  Inputs(const jit::Context& context, const templates::Operator& op, const Tensors& tensors,
         Memory memory, Sources sources);

  /// Only what is asked for by need() is made, since there is so much of it.
  bool lazy() const { return lazy_; }

  /// Puts the inputs of a data kind on the device. Valid until the next call.
  Result<Buffers*> use(DataKind kind);
  /// Makes, of the kind that is in use, what input_needs() asks for and is not there yet.
  Result<void> need(DataKind kind, const std::vector<std::vector<Rect>>& needs);
  /// Of the kind that is in use: that a run has changed nothing. Errors: kWrongResult.
  Result<void> check_unchanged(DataKind kind);
  /// Another set of all inputs, on the device.
  Result<Buffers> copy(DataKind kind);

  Result<std::vector<templates::HostTensor>> on_host(DataKind kind);

 private:
  /// Of one data kind: what the host knows and, while it is resident, the device.
  struct Data {
    Source source;
    std::vector<jit::FilledBytes> images;  ///< by input: the whole buffer; poison where not made
    std::vector<MadeCells> made;
    Buffers buffers;  ///< empty: the shared ones hold it at times
  };

  /// What device memory and its image on the host take of the host: the virtual device is host
  /// memory as well.
  std::size_t host_bytes(std::size_t bytes) const {
    return context_.driver().virtual_api() ? 2 * bytes : bytes;
  }
  Result<Data*> data(DataKind kind);
  Result<void> make(Data& data, const std::vector<std::vector<Rect>>& needs, Buffers* device);
  Result<void> upload(const Data& from, Buffers& to);
  /// After a run that may have spoilt them.
  void forget_device();

  const jit::Context& context_;
  const templates::Operator& op_;
  const Tensors& tensors_;
  Memory memory_;
  Sources sources_;
  bool lazy_;
  std::map<DataKind, Data> data_;
  Buffers shared_;                       ///< where not every kind can be resident
  std::optional<DataKind> shared_kind_;  ///< what they hold
  Buffers* current_ = nullptr;
};

}  // namespace tilewright::search
