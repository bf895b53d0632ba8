#include "jit/plan_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace tilewright::jit {
namespace {

using nlohmann::json;

constexpr std::pair<TensorRole, const char*> kRoles[] = {
    {TensorRole::kInput, "input"},
    {TensorRole::kOutput, "output"},
    {TensorRole::kIntermediate, "intermediate"}};
constexpr std::pair<ArgumentKind, const char*> kKinds[] = {{ArgumentKind::kTensor, "tensor"},
                                                           {ArgumentKind::kWorkspace, "workspace"},
                                                           {ArgumentKind::kInt64, "int64"},
                                                           {ArgumentKind::kInt32, "int32"}};

template <typename Enum, std::size_t kCount>
const char* name_of(Enum value, const std::pair<Enum, const char*> (&names)[kCount]) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "unknown";
}

/// Reads members of one object; the first that is not as expected is kept as the error.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) wrong(object, "an object");
  }

  void text(const char* member, std::string& out) {
    if (const json* value = find(member)) read(*value, out);
  }
  void flag(const char* member, bool& out) {
    const json* value = find(member);
    if (!value) return;
    if (!value->is_boolean()) return wrong(*value, "true or false");
    out = value->get<bool>();
  }
  void texts(const char* member, std::vector<std::string>& out) {
    each(member, [&](const json& item) { read(item, out.emplace_back()); });
  }
  template <std::size_t kCount>
  void texts(const char* member, std::array<std::string, kCount>& out) {
    fixed(member, kCount, [&](std::size_t i, const json& item) { read(item, out[i]); });
  }
  template <std::size_t kCount>
  void numbers(const char* member, std::array<int, kCount>& out) {
    fixed(member, kCount, [&](std::size_t i, const json& item) { read(item, out[i]); });
  }
  template <typename Integer>
  void number(const char* member, Integer& out) {
    if (const json* value = find(member)) read(*value, out);
  }
  template <typename Enum, std::size_t kCount>
  void name(const char* member, Enum& out, const std::pair<Enum, const char*> (&names)[kCount]) {
    std::string text;
    this->text(member, text);
    if (error_ || !find(member)) return;
    std::vector<const char*> wanted;
    for (const auto& [known, name] : names) {
      if (text == name) return void(out = known);
      wanted.push_back(name);
    }
    error_ = message(fmt::format("is '{}', expected one of {}", text, fmt::join(wanted, ", ")));
  }
  /// The value of `member` as `convert` (a Result-returning function of its text) makes it.
  template <typename T, typename Convert>
  void converted(const char* member, T& out, Convert convert) {
    std::string text;
    this->text(member, text);
    if (error_ || !find(member)) return;
    auto result = convert(text);
    if (result)
      out = *result;
    else
      error_ = with_context(std::move(result.error()), place());
  }
  template <typename Visit>
  void each(const char* member, Visit visit) {
    const json* value = find(member);
    if (!value) return;
    if (!value->is_array()) return wrong(*value, "an array");
    std::string base = at_;
    for (std::size_t i = 0; i < value->size() && !error_; ++i) {
      at_ = fmt::format("{}[{}]", base, i);
      visit((*value)[i]);
    }
  }
  /// `visit` makes an error of its own.
  template <typename T, typename Visit>
  void objects(const char* member, std::vector<T>& out, Visit visit) {
    each(member, [&](const json& item) {
      Result<T> element = visit(item, at_);
      if (element)
        out.push_back(std::move(*element));
      else
        error_ = std::move(element.error());
    });
  }
  template <typename Visit>
  void members(const char* member, Visit visit) {
    const json* value = find(member);
    if (!value) return;
    if (!value->is_object()) return wrong(*value, "an object");
    for (auto item = value->begin(); item != value->end() && !error_; ++item) {
      Reader inner(item.value(), fmt::format("{}.{}", at_, item.key()));
      visit(item.key(), inner);
      error_ = std::move(inner.error_);
    }
  }

  Result<void> finish() {
    if (error_) return fail(std::move(*error_));
    return {};
  }

 private:
  const json* find(const char* member) {
    if (error_) return nullptr;
    auto value = object_.find(member);
    if (value == object_.end()) return nullptr;
    at_ = where_.empty() ? member : fmt::format("{}.{}", where_, member);
    return &*value;
  }
  std::string place() const { return at_.empty() ? "plan" : "plan " + at_; }
  Error message(std::string text) const {
    return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", place(), text), {}};
  }
  void wrong(const json& seen, std::string_view wanted) {
    if (at_.empty()) at_ = where_;
    std::string text = seen.dump();
    if (text.size() > 40) text = text.substr(0, 40) + "...";
    error_ = message(fmt::format("is {}, expected {}", text, wanted));
  }
  void read(const json& value, std::string& out) {
    if (!value.is_string()) return wrong(value, "a string");
    out = value.get<std::string>();
  }
  template <typename Integer>
  void read(const json& value, Integer& out) {
    if (!value.is_number_integer()) return wrong(value, "an integer");
    const auto wide = value.get<std::int64_t>();
    if (wide < std::numeric_limits<Integer>::min() || wide > std::numeric_limits<Integer>::max() ||
        (value.is_number_unsigned() && wide < 0))
      return wrong(value, fmt::format("an integer of {} bits", 8 * sizeof(Integer)));
    out = static_cast<Integer>(wide);
  }
  template <typename Visit>
  void fixed(const char* member, std::size_t count, Visit visit) {
    const json* value = find(member);
    if (!value) return;
    if (!value->is_array() || value->size() != count)
      return wrong(*value, fmt::format("an array of {}", count));
    for (std::size_t i = 0; i < count && !error_; ++i) visit(i, (*value)[i]);
  }

  const json& object_;
  std::string where_, at_;
  std::optional<Error> error_;
};

Result<PlanTensor> read_tensor(const json& object, const std::string& where) {
  PlanTensor tensor;
  Reader reader(object, where);
  reader.text("name", tensor.name);
  reader.converted("dtype", tensor.dtype, parse_dtype);
  reader.name("role", tensor.role, kRoles);
  reader.texts("shape", tensor.shape);
  reader.texts("strides", tensor.strides);
  reader.text("workspace_offset", tensor.workspace_offset);
  TILEWRIGHT_TRY(reader.finish());
  return tensor;
}

Result<PlanArgument> read_argument(const json& object, const std::string& where) {
  PlanArgument argument;
  Reader reader(object, where);
  reader.name("kind", argument.kind, kKinds);
  reader.text("name", argument.name);
  reader.text("expression", argument.expression);
  reader.flag("apart", argument.apart);
  TILEWRIGHT_TRY(reader.finish());
  return argument;
}

Result<PlanLaunch> read_launch(const json& object, const std::string& where) {
  PlanLaunch launch;
  Reader reader(object, where);
  reader.converted("image", launch.image, Digest::parse);
  reader.text("kernel", launch.kernel);
  reader.texts("grid", launch.grid);
  reader.numbers("block", launch.block);
  reader.number("dynamic_shared_bytes", launch.dynamic_shared_bytes);
  reader.objects("arguments", launch.arguments, read_argument);
  reader.texts("tile", launch.tile);
  TILEWRIGHT_TRY(reader.finish());
  return launch;
}

json tensor_json(const PlanTensor& tensor) {
  json object = {{"name", tensor.name},
                 {"dtype", std::string(to_string(tensor.dtype))},
                 {"role", name_of(tensor.role, kRoles)},
                 {"shape", tensor.shape}};
  if (!tensor.strides.empty()) object["strides"] = tensor.strides;
  if (!tensor.workspace_offset.empty()) object["workspace_offset"] = tensor.workspace_offset;
  return object;
}

json launch_json(const PlanLaunch& launch) {
  json arguments = json::array();
  for (const PlanArgument& argument : launch.arguments) {
    json object = {{"kind", name_of(argument.kind, kKinds)}};
    if (!argument.name.empty()) object["name"] = argument.name;
    if (!argument.expression.empty()) object["expression"] = argument.expression;
    if (argument.apart) object["apart"] = true;
    arguments.push_back(std::move(object));
  }
  return {{"image", launch.image.hex()},
          {"kernel", launch.kernel},
          {"grid", launch.grid},
          {"block", launch.block},
          {"dynamic_shared_bytes", launch.dynamic_shared_bytes},
          {"arguments", std::move(arguments)},
          {"tile", launch.tile}};
}

}  // namespace

json to_json(const Plan& plan) {
  json tensors = json::array(), launches = json::array(), chosen_for = json::object();
  for (const PlanTensor& tensor : plan.tensors) tensors.push_back(tensor_json(tensor));
  for (const PlanLaunch& launch : plan.launches) launches.push_back(launch_json(launch));
  for (const auto& [dimension, range] : plan.chosen_for)
    chosen_for[dimension] = {{"low", range.low}, {"high", range.high}};
  return {{"dimensions", plan.dimensions},
          {"tensors", std::move(tensors)},
          {"launches", std::move(launches)},
          {"workspace_bytes", plan.workspace_bytes},
          {"legal", plan.legal},
          {"chosen_for", std::move(chosen_for)}};
}

Result<Plan> plan_from_json(const json& object) {
  Plan plan;
  Reader reader(object, "");
  reader.texts("dimensions", plan.dimensions);
  reader.objects("tensors", plan.tensors, read_tensor);
  reader.objects("launches", plan.launches, read_launch);
  reader.text("workspace_bytes", plan.workspace_bytes);
  reader.texts("legal", plan.legal);
  reader.members("chosen_for", [&](const std::string& dimension, Reader& range) {
    range.number("low", plan.chosen_for[dimension].low);
    range.number("high", plan.chosen_for[dimension].high);
  });
  TILEWRIGHT_TRY(reader.finish());
  return plan;
}

}  // namespace tilewright::jit
