#include "search/verify/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "search/verify/compare.h"

namespace tilewright::search {
namespace {

// Inputs of every data kind stay on the device if they are no more than this together.
constexpr std::size_t kMostResident = std::size_t{1} << 30;
constexpr std::size_t kKinds = 3;
// Inputs of more than this together are made only where chosen blocks read them.
constexpr std::size_t kMostMade = std::size_t{64} << 20;
// Inputs up to this size are compared whole after a run, larger ones in pieces: these many at most.
constexpr std::size_t kMostCompared = std::size_t{32} << 20;
constexpr std::size_t kPiece = 4096, kPieceStep = 65536, kMostPieces = 4096;

bool overlaps(const TensorLayout& layout) {
  return static_cast<std::size_t>(layout.rows * layout.columns) * layout.element_bytes >
         layout.bytes;
}

std::size_t offset_of(const TensorLayout& layout, std::int64_t row, std::int64_t column) {
  return layout.row_offset(row) + static_cast<std::size_t>(column) * layout.element_bytes;
}

}  // namespace

std::string subject(const char* what, const templates::Operator& op) {
  return fmt::format("{} of operator '{}'", what, op.name);
}

Inputs::Inputs(const jit::Context& context, const templates::Operator& op, const Tensors& tensors,
               Memory memory, Sources sources)
    : context_(context),
      op_(op),
      tensors_(tensors),
      memory_(memory),
      sources_(std::move(sources)),
      lazy_(context.driver().virtual_api() && bytes_of(tensors.inputs) > kMostMade) {}

Result<Inputs::Data*> Inputs::data(DataKind kind) {
  auto known = data_.find(kind);
  if (known != data_.end()) return &known->second;
  Data made;
  made.source = sources_(kind);
  std::vector<std::vector<Rect>> everything;
  for (const TensorLayout& layout : tensors_.inputs) {
    made.images.emplace_back(layout.bytes, kPoison);
    if (!made.images.back().data()) {
      return fail(ErrorCode::kOutOfMemory, fmt::format("no {} MiB of address space for input '{}'",
                                                       layout.bytes >> 20, layout.name));
    }
    made.made.emplace_back(layout.rows, layout.columns);
    everything.push_back({{0, layout.rows, 0, layout.columns}});
  }
  if (!lazy_) TILEWRIGHT_TRY(make(made, everything, nullptr));
  return &data_.emplace(kind, std::move(made)).first->second;
}

/// Makes what `needs` asks for and is not there yet; `device`: there, too.
Result<void> Inputs::make(Data& data, const std::vector<std::vector<Rect>>& needs,
                          Buffers* device) {
  std::size_t missing = 0;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    std::int64_t elements = 0;
    for (const Rect& rect : needs[i]) elements += data.made[i].missing(rect);
    const TensorLayout& layout = tensors_.inputs[i];
    missing += std::min(layout.bytes, static_cast<std::size_t>(elements) * layout.element_bytes);
  }
  TILEWRIGHT_TRY(memory_.host.take(host_bytes(missing), subject("inputs", op_)));
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const TensorLayout& layout = tensors_.inputs[i];
    std::vector<Rect> rects = needs[i];
    // Rows on each other are made in their order, all of them.
    if (overlaps(layout) && !rects.empty()) rects = {{0, layout.rows, 0, layout.columns}};
    for (const Rect& rect : rects) {
      TILEWRIGHT_TRY(data.made[i].cover(
          rect, [&](std::int64_t row, std::int64_t begin, std::int64_t end) -> Result<void> {
            const std::size_t offset = offset_of(layout, row, begin);
            std::byte* const target = data.images[i].data() + offset;
            data.source(i, row, begin, end, target);
            if (!device) return {};
            return (*device)[i].upload(
                target, static_cast<std::size_t>(end - begin) * layout.element_bytes, offset);
          }));
    }
  }
  return {};
}

Result<void> Inputs::upload(const Data& from, Buffers& to) {
  Buffers buffers = std::move(to);
  to.clear();  // all of them, or none
  for (std::size_t i = 0; i < from.images.size(); ++i) {
    const auto& image = from.images[i];
    const TensorLayout& layout = tensors_.inputs[i];
    if (buffers.size() <= i) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto buffer,
                                  memory_.device.allocate(image.size(), subject("inputs", op_)));
      buffers.push_back(std::move(buffer));
    }
    if (!lazy_) {
      TILEWRIGHT_TRY(buffers[i].upload(image.data(), image.size()));
      continue;
    }
    TILEWRIGHT_TRY(buffers[i].fill(kPoison, image.size()));
    TILEWRIGHT_TRY(
        from.made[i].for_made([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
          const std::size_t offset = offset_of(layout, row, begin);
          return buffers[i].upload(image.data() + offset,
                                   static_cast<std::size_t>(end - begin) * layout.element_bytes,
                                   offset);
        }));
  }
  to = std::move(buffers);
  return {};
}

Result<Buffers*> Inputs::use(DataKind kind) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Data* const found, data(kind));
  Data& wanted = *found;
  TILEWRIGHT_ASSIGN_OR_RETURN(std::size_t room, memory_.device.room());
  room /= 2;
  const bool resident =
      kKinds * bytes_of(tensors_.inputs) <= (lazy_ ? room : std::min(kMostResident, room));
  // Those that were made while there was room stay.
  if (!wanted.buffers.empty() || (resident && shared_.empty())) {
    if (wanted.buffers.empty()) TILEWRIGHT_TRY(upload(wanted, wanted.buffers));
    return current_ = &wanted.buffers;
  }
  if (shared_kind_ != kind) {
    shared_kind_.reset();
    TILEWRIGHT_TRY(upload(wanted, shared_));
    shared_kind_ = kind;
  }
  return current_ = &shared_;
}

Result<void> Inputs::need(DataKind kind, const std::vector<std::vector<Rect>>& needs) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Data* const found, data(kind));
  return make(*found, needs, current_);
}

void Inputs::forget_device() {
  shared_kind_.reset();
  for (auto& [kind, data] : data_) data.buffers.clear();
}

Result<Buffers> Inputs::copy(DataKind kind) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Data* const values, data(kind));
  Buffers buffers;
  TILEWRIGHT_TRY(upload(*values, buffers));
  return buffers;
}

Result<std::vector<templates::HostTensor>> Inputs::on_host(DataKind kind) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Data* const values, data(kind));
  std::vector<templates::HostTensor> tensors;
  for (std::size_t i = 0; i < tensors_.inputs.size(); ++i) {
    const TensorLayout& layout = tensors_.inputs[i];
    tensors.push_back(
        {layout.dtype, layout.shape, layout.strides, values->images[i].data() + layout.begin});
  }
  return tensors;
}

Result<void> Inputs::check_unchanged(DataKind kind) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Data* const found, data(kind));
  const Data& wanted = *found;
  std::vector<std::byte> piece;
  for (std::size_t i = 0; i < wanted.images.size(); ++i) {
    const auto& image = wanted.images[i];
    bool whole = image.size() <= kMostCompared;
    std::size_t length = whole ? image.size() : kPiece;
    std::size_t step = whole ? image.size() : std::max(kPieceStep, image.size() / kMostPieces);
    for (std::size_t begin = 0; begin < image.size(); begin += step) {
      std::size_t count = std::min(length, image.size() - begin);
      // The last piece reaches to the end: the redzone after the tensor is in it.
      if (!whole && begin + step >= image.size()) {
        begin = image.size() - kPiece;
        count = kPiece;
      }
      piece.resize(count);
      TILEWRIGHT_TRY((*current_)[i].download(piece.data(), count, begin));
      if (std::memcmp(piece.data(), image.data() + begin, count) == 0) continue;
      auto differs = std::mismatch(piece.begin(), piece.end(), image.data() + begin);
      auto at = static_cast<std::int64_t>(begin) + (differs.first - piece.begin()) -
                static_cast<std::int64_t>(tensors_.inputs[i].begin);
      std::string name = tensors_.inputs[i].name;
      forget_device();
      return fail(ErrorCode::kWrongResult,
                  fmt::format("input '{}' was written at byte {} from its start ({} data), "
                              "expected no write there",
                              name, at, to_string(kind)));
    }
  }
  return {};
}

}  // namespace tilewright::search
