#include "client/cli/vgpu/expectation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "templates/operator/evaluate.h"
#include "templates/operator/parse.h"

namespace tilewright::cli {
namespace {

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    } else {
      if (!word.empty() && !std::isdigit(static_cast<unsigned char>(word[0]))) words.insert(word);
      word.clear();
    }
  }
  return words;
}

/// Operators know three types; what has another is given to them as f32.
DType dtype_of(Element element) {
  if (element == Element::kF16) return DType::kF16;
  if (element == Element::kBF16) return DType::kBF16;
  return DType::kF32;
}

struct Text {
  std::string yaml;
  std::vector<const Buffer*> inputs;
  std::vector<std::string> outputs;
};

/// The body as an operator file, each statement on the line where it stands in the specification.
Text operator_text(const LaunchSpec& spec) {
  std::set<std::string> used, assigned;
  for (const Statement& statement : spec.body) {
    const std::size_t equals = statement.text.find('=');
    for (const std::string& word : words_of(statement.text.substr(0, equals)))
      assigned.insert(word);
    if (equals != std::string::npos)
      for (const std::string& word : words_of(statement.text.substr(equals))) used.insert(word);
  }
  Text text;
  text.yaml = "body:";
  int line = 1;
  for (const Statement& statement : spec.body) {
    do {
      text.yaml += "\n";
    } while (++line < statement.line);
    text.yaml += "  - " + statement.text;
  }
  text.yaml += "\noperator: body\ninputs:\n";
  for (const Buffer& buffer : spec.buffers) {
    if (used.count(buffer.name) == 0 || assigned.count(buffer.name) > 0) continue;
    text.inputs.push_back(&buffer);
    text.yaml += fmt::format("  {}: {{dtype: {}, shape: [{}]}}\n", buffer.name,
                             to_string(dtype_of(buffer.element)), fmt::join(buffer.shape, ", "));
  }
  std::string parameters;
  for (const auto& [name, value] : spec.sizes)
    if (used.count(name) > 0 && assigned.count(name) == 0)
      parameters += fmt::format("  {}: {}\n", name, value);
  if (!parameters.empty()) text.yaml += "parameters:\n" + parameters;
  text.yaml += "outputs:\n";
  for (const Expected& expected : spec.expected) {
    if (expected.name.empty() ||
        std::find(text.outputs.begin(), text.outputs.end(), expected.name) != text.outputs.end())
      continue;
    text.outputs.push_back(expected.name);
    text.yaml += fmt::format("  {}: {{dtype: {}}}\n", expected.name,
                             to_string(dtype_of(spec.find(expected.buffer)->element)));
  }
  return text;
}

/// Dense strides of a row-major tensor.
std::vector<std::int64_t> dense(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

void add(Expectation& expectation, const Buffer& buffer, const Expected& expected, double value,
         double error) {
  error = std::max(error, expected.absolute + expected.relative * std::fabs(value));
  expectation.value.push_back(value);
  expectation.low.push_back(rounded(buffer.element, value - error));
  expectation.high.push_back(rounded(buffer.element, value + error));
}

/// What elements may be off by, each; empty: the expectation names no buffer of slack.
Result<std::vector<double>> slack_of(const LaunchSpec& spec, const Expected& expected,
                                     const std::vector<Bytes>& filled) {
  std::vector<double> slack;
  if (expected.slack.empty()) return slack;
  const Buffer& buffer = *spec.find(expected.slack);
  const Bytes& contents = filled.at(std::size_t(&buffer - spec.buffers.data()));
  if (contents.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: the slack '{}' is uninitialised, expected a fill", spec.file,
                            expected.line, buffer.name));
  for (std::size_t i = 0; i < buffer.elements(); ++i)
    slack.push_back(read(buffer.element, contents.data(), i));
  return slack;
}

}  // namespace

Result<std::vector<Expectation>> expectations(const LaunchSpec& spec,
                                              const std::vector<Bytes>& filled) {
  std::vector<Expectation> all;
  std::optional<templates::Operator> op;
  std::optional<templates::Evaluator> evaluator;
  std::vector<Bytes> converted;
  const Text text = operator_text(spec);
  if (!text.outputs.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(op, templates::parse_operator(text.yaml, spec.file));
    std::vector<templates::HostTensor> tensors;
    converted.reserve(text.inputs.size());
    for (const Buffer* buffer : text.inputs) {
      const Bytes& contents = filled.at(std::size_t(buffer - spec.buffers.data()));
      if (contents.empty())
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}:{}: the body reads '{}', which is uninitialised, expected a "
                                "fill",
                                spec.file, buffer->line, buffer->name));
      const DType dtype = dtype_of(buffer->element);
      const std::byte* data = contents.data();
      if (to_string(dtype) != to_string(buffer->element)) {
        Bytes& floats = converted.emplace_back(buffer->elements() * 4);
        for (std::size_t i = 0; i < buffer->elements(); ++i)
          write(Element::kF32, floats.data(), i, read(buffer->element, contents.data(), i));
        data = floats.data();
      }
      tensors.push_back({dtype, buffer->shape, dense(buffer->shape), data});
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(evaluator, templates::Evaluator::create(*op, {}, tensors));
  }
  for (const Expected& expected : spec.expected) {
    const Buffer& buffer = *spec.find(expected.buffer);
    Expectation& expectation = all.emplace_back();
    expectation.buffer = expected.buffer;
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> slack, slack_of(spec, expected, filled));
    auto slack_at = [&](std::size_t i) { return slack.empty() ? 0 : slack[i]; };
    if (expected.name.empty()) {
      for (std::size_t i = 0; i < buffer.elements(); ++i)
        add(expectation, buffer, expected, expected.values[i % expected.values.size()],
            slack_at(i));
      continue;
    }
    const auto output = std::size_t(
        std::find(text.outputs.begin(), text.outputs.end(), expected.name) - text.outputs.begin());
    TILEWRIGHT_ASSIGN_OR_RETURN(auto references, evaluator->whole(output));
    if (references.size() != buffer.elements())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: '{}' has {} elements, '{}' of the body has {}, expected as "
                              "many",
                              spec.file, expected.line, buffer.name, buffer.elements(),
                              expected.name, references.size()));
    for (std::size_t i = 0; i < references.size(); ++i)
      add(expectation, buffer, expected, references[i].value, references[i].error() + slack_at(i));
  }
  return all;
}

std::vector<Mismatch> mismatches(const Buffer& buffer, const Expectation& expectation,
                                 const void* contents, std::size_t most) {
  std::vector<Mismatch> found;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < expectation.value.size(); ++i) {
    const double seen = read(buffer.element, contents, i);
    const double low = expectation.low[i], high = expectation.high[i];
    const bool right = std::isnan(low) || std::isnan(high)
                           ? std::isnan(seen) || !std::isnan(expectation.value[i])
                           : seen >= low && seen <= high;
    if (right) continue;
    ++count;
    if (found.size() >= most) continue;
    Mismatch& mismatch = found.emplace_back();
    mismatch.buffer = buffer.name;
    mismatch.index.resize(buffer.shape.size());
    std::size_t rest = i;
    for (std::size_t axis = buffer.shape.size(); axis-- > 0;) {
      mismatch.index[axis] = std::int64_t(rest % std::size_t(buffer.shape[axis]));
      rest /= std::size_t(buffer.shape[axis]);
    }
    mismatch.seen = seen;
    mismatch.expected = expectation.value[i];
    mismatch.low = low;
    mismatch.high = high;
  }
  for (Mismatch& mismatch : found) mismatch.count = count;
  return found;
}

}  // namespace tilewright::cli
