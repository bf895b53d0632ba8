#include <fmt/format.h>

#include <istream>
#include <map>
#include <ostream>
#include <set>
#include <sstream>

#include "cache/json_line.h"
#include "cache/store.h"
#include "templates/operator/parse.h"

namespace tilewright::cache {
namespace {

/// Of one image in base64 there is room for many times over.
constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;

/// A file of lines that is read in order, and again where it pleases.
class LineFile {
 public:
  LineFile(std::istream& in, std::string name) : in_(&in), name_(std::move(name)) {
    start_ = in.tellg();
    if (start_ != std::streampos(-1)) return;
    in.clear();
    held_ << in.rdbuf();
    held_.clear();
    in_ = &held_;
    start_ = 0;
  }

  /// Where the next line begins.
  std::streamoff at() const { return offset_; }

  void seek(std::streamoff offset, std::size_t number) {
    in_->clear();
    in_->seekg(start_ + offset);
    offset_ = offset;
    number_ = number - 1;
  }

  /// nullopt at the end. Errors: as of parse_line, and kIo; the line is named.
  Result<std::optional<Line>> next() {
    std::string line;
    TILEWRIGHT_ASSIGN_OR_RETURN(bool any, read(line));
    if (!any) return std::optional<Line>();
    auto parsed = parse_line(line);
    if (!parsed) return fail(at_line(std::move(parsed.error())));
    return std::optional<Line>(std::move(*parsed));
  }

  /// Of the line that next() gave.
  std::size_t number() const { return number_; }
  Error at_line(Error error) const {
    return with_context(std::move(error), fmt::format("{}:{}", name_, number_));
  }
  const std::string& name() const { return name_; }

 private:
  Result<bool> read(std::string& line) {
    ++number_;
    std::streambuf& buffer = *in_->rdbuf();
    using Traits = std::streambuf::traits_type;
    auto letter = buffer.sgetc();
    if (letter == Traits::eof()) return false;
    while ((letter = buffer.sbumpc()) != Traits::eof()) {
      ++offset_;
      if (Traits::to_char_type(letter) == '\n') break;
      if (line.size() == kMaxLineBytes) {
        return fail(at_line({ErrorCode::kInvalidArgument,
                             fmt::format("line has more than {} bytes", kMaxLineBytes),
                             {}}));
      }
      line.push_back(Traits::to_char_type(letter));
    }
    return true;
  }

  std::istream* in_;
  std::string name_;
  std::stringstream held_;
  std::streampos start_;
  std::streamoff offset_ = 0;
  std::size_t number_ = 0;
};

struct Place {
  std::streamoff offset;
  std::size_t line;
};

/// Where things stand in a file of which every line has been verified.
struct Contents {
  std::vector<Place> records;
  std::map<Digest, Place> images;
};

Result<Contents> verify(LineFile& file) {
  Contents contents;
  for (bool first = true;; first = false) {
    std::streamoff offset = file.at();
    TILEWRIGHT_ASSIGN_OR_RETURN(auto line, file.next());
    if (!line && first) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: is empty, expected a header", file.name()));
    }
    if (!line) return contents;
    bool is_header = std::holds_alternative<Header>(*line);
    const auto* image = std::get_if<jit::Image>(&*line);
    if (first && !is_header) {
      return fail(file.at_line(
          {ErrorCode::kInvalidArgument,
           fmt::format("kind is '{}', expected a header first", image ? "image" : "record"),
           {}}));
    }
    if (!first && is_header) {
      return fail(file.at_line(
          {ErrorCode::kInvalidArgument, "header is repeated, expected record or image", {}}));
    }
    Place place{offset, file.number()};
    if (image) contents.images.emplace(image->digest, place);
    if (std::holds_alternative<Record>(*line)) contents.records.push_back(place);
  }
}

template <typename T>
Result<T> read_again(LineFile& file, const Place& place) {
  file.seek(place.offset, place.line);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto line, file.next());
  if (!line || !std::holds_alternative<T>(*line))
    return fail(file.at_line({ErrorCode::kIo, "line has changed since it was verified", {}}));
  return std::move(std::get<T>(*line));
}

std::vector<Digest> images_of(const Entry& entry) {
  Record record;
  record.entries = {entry};
  return record.images();
}

/// An entry to take, and whether it goes before what is known for the same sizes without a contest,
/// since that has lost its images.
struct Offer {
  Entry entry;
  bool wins = false;
};

class Import {
 public:
  Import(Store& store, LineFile& file, const Contents& contents, const Digest& generator)
      : store_(store), file_(file), contents_(contents), generator_(generator) {}

  const ImportCounts& counts() const { return counts_; }

  Result<void> take(const Record& imported) {
    auto got = store_.get(imported.key);
    // A damaged record is as good as none.
    if (!got && got.error().code != ErrorCode::kCorrupt) return fail(std::move(got.error()));
    Record known = got && *got ? std::move(**got) : Record();
    if (!may_join(imported, known)) {
      ++counts_.other_generator;
      return {};
    }
    if (known.generator != imported.generator) known.entries.clear();
    if (!same_bits(imported, known)) {
      ++counts_.kept;
      return {};
    }
    std::vector<Offer> offers;
    std::size_t without_images = 0;
    for (const Entry& entry : imported.entries) {
      const Entry* rival = known.rival(entry);
      bool rival_whole = false, whole = false;
      if (rival) {
        TILEWRIGHT_ASSIGN_OR_RETURN(rival_whole, has_images(store_, *rival));
        // Without its images an entry still says what was best, where nothing better does.
        TILEWRIGHT_ASSIGN_OR_RETURN(whole, can_be_had(entry));
        if (!displaces(entry, *rival) && (rival_whole || !whole)) continue;
        if (rival_whole && !whole) {
          ++without_images;
          continue;
        }
      }
      offers.push_back({entry, rival && whole && !rival_whole});
    }
    if (offers.empty()) {
      ++(without_images > 0 ? counts_.without_images : counts_.kept);
      return {};
    }
    return write(imported, offers);
  }

 private:
  /// Old knowledge must not cost new: only the caller's own generator clears what another left.
  bool may_join(const Record& imported, const Record& known) const {
    return known.entries.empty() || known.generator == imported.generator ||
           (!generator_.empty() && imported.generator == generator_);
  }

  /// All plans of a batch-invariant operator's record give the same bits. Those of two records do if
  /// the records have a plan in common, which is made alike.
  static bool same_bits(const Record& imported, const Record& known) {
    if (known.entries.empty()) return true;
    const auto op = templates::parse_operator(imported.key.operator_text, "the record's operator");
    if (!op || !op->numerics.batch_invariant) return true;
    for (const Entry& theirs : imported.entries)
      for (const Entry& ours : known.entries)
        if (theirs.groups == ours.groups &&
            theirs.evidence.nvrtc_version == ours.evidence.nvrtc_version)
          return true;
    return false;
  }

  Result<bool> is_here(const Digest& digest) const {
    auto image = store_.image(digest);
    if (!image && image.error().code != ErrorCode::kCorrupt) return fail(std::move(image.error()));
    return image && *image;
  }

  Result<bool> can_be_had(const Entry& entry) const {
    for (const Digest& digest : images_of(entry)) {
      if (contents_.images.contains(digest)) continue;
      TILEWRIGHT_ASSIGN_OR_RETURN(bool here, is_here(digest));
      if (!here) return false;
    }
    return true;
  }

  Result<void> write(const Record& imported, const std::vector<Offer>& offers) {
    Images images;
    std::set<Digest> seen;
    for (const Offer& offer : offers) {
      for (const Digest& digest : images_of(offer.entry)) {
        auto place = contents_.images.find(digest);
        if (place == contents_.images.end() || !seen.insert(digest).second) continue;
        TILEWRIGHT_ASSIGN_OR_RETURN(bool here, is_here(digest));
        if (here) continue;
        TILEWRIGHT_ASSIGN_OR_RETURN(auto image, read_again<jit::Image>(file_, place->second));
        images.push_back(std::make_shared<const jit::Image>(std::move(image)));
      }
    }
    bool joined = false;
    auto join = [&](Record& record) {
      // Again: a tune may have ended since.
      if (!may_join(imported, record)) return;
      Record same = record;
      if (same.generator != imported.generator) same.entries.clear();
      if (!same_bits(imported, same)) return;
      joined = true;
      record = std::move(same);
      record.key = imported.key;
      record.generator = imported.generator;
      for (const Offer& offer : offers) {
        if (offer.wins) {
          record.put(offer.entry);
        } else {
          record.offer(offer.entry);
        }
      }
    };
    TILEWRIGHT_TRY(store_.update(imported.key, join, images));
    if (!joined) {
      ++counts_.other_generator;
      return {};
    }
    ++counts_.taken;
    counts_.images += images.size();
    return {};
  }

  Store& store_;
  LineFile& file_;
  const Contents& contents_;
  const Digest generator_;
  ImportCounts counts_;
};

}  // namespace

Result<std::size_t> export_lines(const Store& store, std::ostream& out) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto snapshot, store.snapshot());
  std::size_t lines = 1;
  out << to_line(Header{}) << '\n';
  std::set<Digest> written;
  Error error;
  // Images first: whoever reads the file as a stream has them when the record comes.
  auto write = [&](const Record& record) {
    for (const Digest& digest : record.images()) {
      if (!written.insert(digest).second) continue;
      auto image = snapshot->image(digest);
      // Damaged, or evicted: the record is a miss where it is read, as it is here.
      if (!image && image.error().code == ErrorCode::kCorrupt) continue;
      if (!image) {
        error = image.error();
        return false;
      }
      if (!*image) continue;
      out << to_line(**image) << '\n';
      ++lines;
    }
    out << to_line(record) << '\n';
    ++lines;
    return out.good();
  };
  TILEWRIGHT_TRY(snapshot->each(write));
  if (!error.message.empty()) return fail(std::move(error));
  out.flush();
  if (!out) return fail(ErrorCode::kIo, "export could not be written");
  return lines;
}

Result<ImportCounts> import_lines(Store& store, std::istream& in, const std::string& name,
                                  const Digest& generator) {
  LineFile file(in, name);
  TILEWRIGHT_ASSIGN_OR_RETURN(const Contents contents, verify(file));
  if (in.bad()) return fail(ErrorCode::kIo, fmt::format("{}: cannot be read", name));
  Import import(store, file, contents, generator);
  for (const Place& place : contents.records) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const Record record, read_again<Record>(file, place));
    if (auto taken = import.take(record); !taken)
      return fail(with_context(taken.error(), fmt::format("{}:{}", name, place.line)));
  }
  return import.counts();
}

}  // namespace tilewright::cache
