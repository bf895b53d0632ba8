// Operators that a program builds: what no file can say is refused, too.
#include <gtest/gtest.h>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

Operator right() {
  auto op = parse_operator(R"(operator: built
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
  w: {dtype: f32, shape: [8, 8]}
body:
  - h = matmul(x, w)
  - y = relu(h)
outputs:
  y: {dtype: bf16}
)",
                           "built.yaml");
  EXPECT_TRUE(op) << op.error().message;
  // As if no text stood behind it.
  for (Input& input : op->inputs) input.at = {};
  for (Statement& statement : op->statements) statement.at = {};
  for (Output& output : op->outputs) output.at = {};
  op->at = {};
  return *op;
}

TEST(Verify, AcceptsWhatIsRight) {
  auto verified = verify(right());
  EXPECT_TRUE(verified) << verified.error().message;
}

TEST(Verify, RefusesWhatIsBuiltWrong) {
  struct {
    void (*spoil)(Operator&);
    const char* message;
  } cases[] = {
      {[](Operator& op) { op.name = ""; },
       "operator has the name '', expected letters, digits, '_', '-' and '.'"},
      {[](Operator& op) { op.values.pop_back(); },
       "operator has 3 values, expected 4: one per input and statement"},
      {[](Operator& op) { op.statements[0].result = 3; },
       "value 2 is numbered 3, expected inputs first, then the results of statements in order"},
      {[](Operator& op) { op.values[3].name = "h"; },
       "'h' is defined twice, expected one definition of each name"},
      {[](Operator& op) { op.values[3].name = "1y"; },
       "value has the name '1y', expected letters, digits and _, not starting with a digit"},
      {[](Operator& op) {
         op.statements[0].operands = {0, 3};
       },
       "'h' reads value 3, expected one made before it"},
      {[](Operator& op) { op.statements[0].operands = {0}; }, "matmul has 1 operands, expected 2"},
      {[](Operator& op) { op.values[2].shape[1].value = 9; },
       "'h' has shape [M, 9], expected [M, 8]"},
      {[](Operator& op) { op.values[2].dtype = DType::kF16; }, "'h' is f16, expected f32"},
      {[](Operator& op) { op.values[3].dtype = DType::kF32; }, "'y' is f32, expected bf16"},
      {[](Operator& op) { op.values[0].shape[0] = {.value = {}, .symbol = "L"}; },
       "'x' uses the dimension 'L', expected one of: M"},
      {[](Operator& op) { op.values[0].shape[0] = {.value = std::int64_t{1} << 50, .symbol = {}}; },
       "'x' has shape [1125899906842624, 8], expected at most 2^48 elements"},
      {[](Operator& op) {
         op.outputs.clear();
         op.values[3].dtype = DType::kF32;
       },
       "operator has no outputs, expected at least one"},
      {[](Operator& op) {
         op.outputs[0].value = 7;
         op.values[3].dtype = DType::kF32;
       },
       "output is value 7, expected at most 3"},
      {[](Operator& op) { op.outputs.push_back(op.outputs[0]); },
       "output 'y' is given twice, expected once"},
      {[](Operator& op) { op.dimensions.push_back("N"); },
       "dimension 'N' is never used, expected it in the shape of an input or in strides"},
  };
  for (const auto& c : cases) {
    Operator op = right();
    c.spoil(op);
    auto refused = verify(op);
    ASSERT_FALSE(refused) << c.message;
    std::string message = refused.error().message;
    EXPECT_EQ(message.substr(message.find(": ") + 2), c.message);
    EXPECT_EQ(message.rfind("operator '", 0), 0u) << message;
  }
}

TEST(Operator, FindsProducersConsumersAndOutputs) {
  Operator op = right();
  EXPECT_EQ(op.producer(0), nullptr);
  EXPECT_EQ(op.producer(3), &op.statements[1]);
  ASSERT_EQ(op.consumers(2).size(), 1u);
  EXPECT_EQ(op.consumers(2)[0], &op.statements[1]);
  EXPECT_EQ(op.output(2), nullptr);
  EXPECT_EQ(op.output(3), &op.outputs[0]);
  EXPECT_EQ(op.find("h"), 2);
  EXPECT_EQ(op.find("q"), std::nullopt);
}

}  // namespace
}  // namespace tilewright::templates
