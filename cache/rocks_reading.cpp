#include "cache/rocks_reading.h"

#include <fmt/format.h>
#include <rocksdb/db.h>

#include "cache/image_codec.h"

namespace tilewright::cache {
namespace {

class RocksSnapshot final : public Snapshot {
 public:
  RocksSnapshot(rocksdb::DB& db, const RocksReading& reading) : db_(db), reading_(reading) {
    options_.snapshot = db.GetSnapshot();
    options_.fill_cache = false;
  }
  ~RocksSnapshot() override { db_.ReleaseSnapshot(options_.snapshot); }

  Result<void> each(const std::function<bool(const Record&)>& visit) const override {
    return reading_.each(visit, options_);
  }
  Result<std::optional<jit::Image>> image(const Digest& digest) const override {
    return reading_.image(digest, options_);
  }

 private:
  rocksdb::DB& db_;
  const RocksReading& reading_;
  rocksdb::ReadOptions options_;
};

/// Bytes that are whole may still lie under another's key.
Result<void> check_name(const Digest& wanted, const Digest& found) {
  if (found == wanted) return {};
  return fail(ErrorCode::kCorrupt, fmt::format("is {}", found.hex()));
}

}  // namespace

RocksReading::RocksReading(const RocksColumns& columns, std::string where,
                           std::function<void(const std::string&)> warn)
    : columns_(columns), where_(std::move(where)), warn_(std::move(warn)) {}

Result<std::optional<Record>> RocksReading::record(const Digest& problem,
                                                   const rocksdb::ReadOptions& options) const {
  rocksdb::PinnableSlice value;
  rocksdb::Status got = columns_.db().Get(options, columns_.records, key_bytes(problem), &value);
  if (got.IsNotFound()) return std::optional<Record>();
  std::string here = where("record " + problem.hex());
  if (!got.ok()) return fail(noted(to_error(got, here)));
  auto record = unpack_record(value.ToStringView());
  if (!record) return fail(noted(with_context(record.error(), here)));
  if (!*record) return record;
  if (auto named = check_name(problem, (*record)->key.problem); !named)
    return fail(noted(with_context(named.error(), here)));
  return record;
}

Result<std::optional<jit::Image>> RocksReading::image(const Digest& digest,
                                                      const rocksdb::ReadOptions& options) const {
  rocksdb::PinnableSlice value;
  rocksdb::Status got = columns_.db().Get(options, columns_.images, key_bytes(digest), &value);
  if (got.IsNotFound()) return std::optional<jit::Image>();
  std::string here = where("image " + digest.hex());
  if (!got.ok()) return fail(noted(to_error(got, here)));
  auto image = unpack_image(value.ToStringView());
  if (!image) return fail(noted(with_context(image.error(), here)));
  if (!*image) return image;
  if (auto named = check_name(digest, (*image)->digest); !named)
    return fail(noted(with_context(named.error(), here)));
  return image;
}

Result<void> RocksReading::each(const std::function<bool(const Record&)>& visit,
                                const rocksdb::ReadOptions& options) const {
  std::unique_ptr<rocksdb::Iterator> it(columns_.db().NewIterator(options, columns_.records));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    auto record = unpack_record(it->value().ToStringView());
    if (!record) {
      Digest problem = digest_from_key(it->key().ToStringView());
      warn(noted(with_context(record.error(), where("record " + problem.hex()))).message +
           "; it is left out");
      continue;
    }
    if (*record && !visit(**record)) return {};
  }
  if (!it->status().ok()) return fail(noted(to_error(it->status(), where("records"))));
  return {};
}

std::unique_ptr<Snapshot> RocksReading::snapshot() const {
  return std::make_unique<RocksSnapshot>(columns_.db(), *this);
}

void RocksReading::warn(const std::string& message) const {
  if (warn_) warn_(message);
}

std::string RocksReading::where(std::string_view what) const {
  return fmt::format("{}: {}", where_, what);
}

Error RocksReading::noted(Error error) const {
  if (error.code == ErrorCode::kCorrupt) ++damaged_;
  return error;
}

}  // namespace tilewright::cache
