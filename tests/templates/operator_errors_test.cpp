// What a wrong operator file is told: file, line, the value seen and the value wanted.
#include <gtest/gtest.h>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

/// A right operator; each case replaces one piece of it.
constexpr const char* kRight = R"(operator: attn_out
parameters: {T: bf16, N: 8, K: 16, eps: 1e-5}
dimensions: [M, ldx]
inputs:
  x: {dtype: T, shape: [M, K], strides: [ldx, 1]}
  w: {dtype: T, shape: [N, K]}
  gain: {dtype: f32, shape: [N]}
body:
  - h = matmul(x, w, transpose_b=true)
  - y = rmsnorm(add(h, 0.5), gain, eps=eps)
outputs:
  y: {dtype: T}
intermediate: f32
numerics: {accuracy: default}
)";

struct Case {
  const char* name;
  const char* replace;  ///< a piece of kRight
  const char* with;
  const char* message;  ///< after "op.yaml:"
  ErrorCode code = ErrorCode::kInvalidArgument;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::string replaced(const Case& c) {
  std::string text = kRight;
  std::size_t found = text.find(c.replace);
  EXPECT_NE(found, std::string::npos) << c.replace;
  if (found != std::string::npos) text.replace(found, std::string(c.replace).size(), c.with);
  return text;
}

class MalformedOperator : public testing::TestWithParam<Case> {};

TEST_P(MalformedOperator, IsToldWhereAndWhat) {
  auto op = parse_operator(replaced(GetParam()), "op.yaml");
  ASSERT_FALSE(op) << print(*op);
  EXPECT_EQ(op.error().message, std::string("op.yaml:") + GetParam().message);
  EXPECT_EQ(op.error().code, GetParam().code);
}

const Case kCases[] = {
    // the file
    {"NotYaml", "inputs:\n", "inputs: [\n",
     "6: text is not YAML (end of sequence flow not found), expected an operator"},
    {"UnknownSection", "intermediate:", "intermediates:",
     "13: operator file has the key 'intermediates', expected one of: operator, parameters, "
     "dimensions, inputs, body, outputs, intermediate, numerics, models"},
    {"SectionTwice", "intermediate: f32", "dimensions: [L]",
     "13: operator file has the key 'dimensions' again, first on line 3, expected it once"},
    {"NoName", "operator: attn_out\n", "", "1: operator is missing, expected its name"},
    {"BadName", "attn_out", "attn out!",
     "1: operator has the name 'attn out!', expected letters, digits, '_', '-' and '.'"},
    {"NoBody",
     "body:\n  - h = matmul(x, w, transpose_b=true)\n  - y = rmsnorm(add(h, 0.5), gain, eps=eps)\n",
     "", "1: operator 'attn_out' has no body, expected the key 'body'"},
    {"BodyIsText", "body:\n  - h = matmul(x, w, transpose_b=true)\n  - y", "body:\n  y",
     "9: body is 'y = rmsnorm(add(h, 0.5), gain, eps=eps)', expected a list of statements"},
    // parameters and dimensions
    {"ParameterIsNoValue", "N: 8", "N: many",
     "2: parameter 'N' is 'many', expected a number, a dtype or dynamic"},
    {"ParameterUnused", "K: 16", "K: 16, Q: 3",
     "2: parameter 'Q' is never used, expected it in a dtype, a shape, strides or the body"},
    {"DimensionUnused", "[M, ldx]", "[M, ldx, B]",
     "3: dimension 'B' is never used, expected it in the shape of an input or in strides"},
    {"DimensionIsAParameter", "[M, ldx]", "[M, ldx, N]",
     "3: dimension 'N' is already defined on line 2, expected a new name"},
    {"DimensionsIsAName", "[M, ldx]", "M", "3: dimensions is 'M', expected a list of names"},
    // tensors
    {"UnknownKeyOfInput", "strides: [ldx, 1]", "stride: [ldx, 1]",
     "5: input 'x' has the key 'stride', expected one of: dtype, shape, strides, layout"},
    {"UnknownDType", "dtype: f32, shape: [N]", "dtype: fp32, shape: [N]",
     "7: dtype of input 'gain' is 'fp32', expected a dtype: f32, f16, bf16, i32, i8, i4, e4m3 or "
     "e5m2"},
    {"DTypeIsANumber", "dtype: f32, shape: [N]", "dtype: N, shape: [N]",
     "7: dtype of input 'gain' is the parameter 'N' = 8, expected a dtype: f32, f16, bf16, i32, "
     "i8, "
     "i4, e4m3 or e5m2"},
    {"NoDType", "dtype: f32, shape: [N]", "shape: [N]",
     "7: dtype of input 'gain' is missing, expected a dtype: f32, f16, bf16, i32, i8, i4, e4m3 or "
     "e5m2"},
    {"Fp8IsNotThereYet", "dtype: f32, shape: [N]", "dtype: e4m3, shape: [N]",
     "7: input 'gain' is e4m3, expected f32, f16 or bf16", ErrorCode::kUnsupported},
    {"UnknownDimension", "shape: [M, K]", "shape: [M, J]",
     "5: axis 1 of shape of input 'x' is 'J', expected a whole number of at least 0 or one of: M, "
     "ldx, N, K, eps"},
    {"FractionalDimension", "shape: [M, K]", "shape: [M, eps]",
     "5: axis 1 of shape of input 'x' is the parameter 'eps' = 1e-05, expected a whole number of "
     "at "
     "least 0"},
    {"NegativeDimension", "shape: [M, K]", "shape: [M, -16]",
     "5: axis 1 of shape of input 'x' is '-16', expected a whole number of at least 0 or one of: "
     "M, "
     "ldx, N, K, eps"},
    {"HugeDimension", "shape: [M, K]", "shape: [M, 999999999999999]",
     "9: matmul contracts 999999999999999 of 'x' [M, 999999999999999] with 16 of 'w' [8, 16] "
     "(transposed), expected equal extents"},
    {"ScalarInput", "shape: [N]}", "shape: []}",
     "10: operand 'gain' of rmsnorm has shape [], expected [8]"},
    {"TooFewStrides", "strides: [ldx, 1]", "strides: [1]",
     "5: 'x' has 1 strides, expected 2: one per axis"},
    {"LastStrideIsNotOne", "strides: [ldx, 1]", "strides: [ldx, 2]",
     "5: 'x' has the last stride 2, expected 1"},
    {"RowsOfAnOutputOverlap", "y: {dtype: T}", "y: {dtype: T, strides: [4, 1]}",
     "12: 'y' has stride 4 on axis 0, expected at least 8: rows of an output must not overlap"},
    {"UnknownLayout", "strides: [ldx, 1]", "strides: [ldx, 1], layout: packed",
     "5: input 'x' has layout 'packed', expected row_major", ErrorCode::kUnsupported},
    {"InputTwice", "w: {dtype: T, shape: [N, K]}", "x: {dtype: T, shape: [N, K]}",
     "6: input 'x' is already defined on line 5, expected a new name"},
    // statements
    {"UnknownOperation", "rmsnorm(", "rms_norm(",
     "10: 'rms_norm' is called, expected an operation such as add, matmul or rmsnorm"},
    {"UndefinedOperand", "add(h, 0.5)", "add(hh, 0.5)",
     "10: operand 'hh' of add is not defined, expected an input, a parameter or a value defined "
     "above"},
    {"OperandDefinedLater", "matmul(x, w,", "matmul(y, w,",
     "9: operand 'y' of matmul is defined later, expected an input, a parameter or a value defined "
     "above"},
    {"DimensionAsOperand", "add(h, 0.5)", "add(h, M)",
     "10: operand 'M' of add is a dimension, expected an input, a parameter or a value defined "
     "above"},
    {"DTypeAsOperand", "add(h, 0.5)", "add(h, T)",
     "10: operand of add is the parameter 'T' = bf16, expected a number"},
    {"TooFewOperands", "add(h, 0.5)", "add(h)", "10: add has 1 operands, expected 2"},
    {"UnclosedCall", "eps=eps)", "eps=eps",
     "10: statement 'y = rmsnorm(add(h, 0.5), gain, eps=eps' has the end of the statement at "
     "column "
     "39, expected ',' or ')' in the arguments of rmsnorm"},
    {"NotACall", "rmsnorm(add(h, 0.5), gain, eps=eps)", "h",
     "10: statement 'y = h' has the end of the statement at column 6, expected '(' after 'h'"},
    {"TextAfterTheCall", "eps=eps)", "eps=eps) + 1",
     "10: statement 'y = rmsnorm(add(h, 0.5), gain, eps=eps) + 1' has '+' at column 41, expected "
     "the end of the statement"},
    {"NoDefinition", "- h = matmul", "- matmul",
     "9: statement 'matmul(x, w, transpose_b=true)' has '(' at column 7, expected '=' after "
     "'matmul'"},
    {"AssignedTwice", "- y = rms", "- h = rms",
     "10: value 'h' is already defined on line 9, expected a new name"},
    {"UnknownAttribute", "transpose_b=true", "trans_b=true",
     "9: matmul has the attribute 'trans_b', expected one of: transpose_a, transpose_b"},
    {"AttributeOfNone", "add(h, 0.5)", "add(h, 0.5, eps=1)",
     "10: add has the attribute 'eps', expected none"},
    {"AttributeMissing", ", eps=eps", "", "10: rmsnorm has no attribute 'eps', expected eps=..."},
    {"AttributeTwice", "eps=eps", "eps=eps, eps=1",
     "10: rmsnorm has 'eps' twice, expected each attribute once"},
    {"AttributeIsNoFlag", "transpose_b=true", "transpose_b=1",
     "9: attribute 'transpose_b' of matmul is '1', expected true or false"},
    {"AttributeIsNoNumber", "eps=eps", "eps=tiny",
     "10: attribute 'eps' of rmsnorm is 'tiny', expected a number or a parameter"},
    {"AttributeOutOfRange", "eps=eps", "eps=-1",
     "10: rmsnorm has eps=-1, expected a finite number of at least 0"},
    {"OperandAfterAttribute", "matmul(x, w, transpose_b=true)", "matmul(x, transpose_b=true, w)",
     "9: matmul has the operand 'w' after 'transpose_b=', expected operands before attributes"},
    {"ClampUpsideDown", "add(h, 0.5)", "clamp(h, low=1, high=-1)",
     "10: clamp has low=1 and high=-1, expected low <= high"},
    {"CastToInt8", "add(h, 0.5)", "cast(h, dtype=i8)",
     "10: cast has dtype=i8, expected f32, f16 or bf16", ErrorCode::kUnsupported},
    // types
    {"ContractionDiffers", ", transpose_b=true", "",
     "9: matmul contracts 16 of 'x' [M, 16] with 8 of 'w' [8, 16], expected equal extents"},
    {"ShapesDoNotBroadcast", "add(h, 0.5)", "add(h, w)",
     "10: operands of add do not broadcast: [M, 8] and [8, 16] differ on axis 0: M and 8, expected "
     "equal or 1"},
    {"GainStretches", "dtype: f32, shape: [N]", "dtype: f32, shape: [1]",
     "10: operand 'gain' of rmsnorm has shape [1], expected [8]"},
    {"ArithmeticOnBool", "add(h, 0.5)", "add(h, less(h, 0))",
     "10: operand 't1' of add is bool, expected a number"},
    {"ConditionIsANumber", "add(h, 0.5)", "select(h, h, 0)",
     "10: condition 'h' of select is f32, expected the bool of a comparison"},
    {"BoolOutput", "rmsnorm(add(h, 0.5), gain, eps=eps)", "less(add(h, eps), gain)",
     "12: output 'y' is bool, expected a number: a comparison is never stored"},
    // outputs and the rest
    {"UnknownOutput", "y: {dtype: T}", "z: {dtype: T}",
     "12: output 'z' is not defined, expected one of: h, t0, y"},
    {"InputAsOutput", "y: {dtype: T}", "y: {dtype: T}\n  w: {dtype: T}",
     "13: output 'w' is an input, expected the result of a statement"},
    {"UnusedValue", "y: {dtype: T}", "h: {dtype: T}",
     "10: value 'y' is never used, expected a statement that reads it or an output"},
    {"UnusedInput", "gain, eps=eps", "w, eps=eps",
     "10: operand 'w' of rmsnorm has shape [8, 16], expected [8]"},
    {"IntermediateIsNoDType", "intermediate: f32", "intermediate: wide",
     "13: intermediate is 'wide', expected a dtype: f32, f16, bf16, i32, i8, i4, e4m3 or e5m2"},
    {"UnknownAccuracy", "accuracy: default", "accuracy: high",
     "14: accuracy is 'high', expected exact, default or fast"},
    {"UnknownNumerics", "accuracy: default", "deterministic: maybe",
     "14: deterministic is 'maybe', expected true or false"},
};

INSTANTIATE_TEST_SUITE_P(Table, MalformedOperator, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OperatorFile, ParsesBeforeAnyPieceIsReplaced) {
  auto op = parse_operator(kRight, "op.yaml");
  ASSERT_TRUE(op) << op.error().message;
}

TEST(OperatorFile, RefusesOverridesOfTheWrongKind) {
  struct {
    Overrides overrides;
    const char* message;
  } cases[] = {
      {{{"Q", "1"}},
       "op.yaml:1: 'Q' is overridden with '1', expected one of the parameters: T, N, K, eps"},
      {{{"T", "7"}},
       "op.yaml:2: parameter 'T' is overridden with '7', expected a dtype: f32, f16, bf16, i32, "
       "i8, "
       "i4, e4m3 or e5m2"},
      {{{"N", "f32"}},
       "op.yaml:2: parameter 'N' is overridden with 'f32', expected a number or dynamic"},
      {{{"N", "wide"}},
       "op.yaml:2: parameter 'N' is overridden with 'wide', expected a number or dynamic"},
      {{{"eps", "dynamic"}},
       "op.yaml:10: attribute 'eps' of rmsnorm is the parameter 'eps' = dynamic, expected a "
       "number"},
  };
  for (const auto& c : cases) {
    auto op = parse_operator(kRight, "op.yaml", c.overrides);
    ASSERT_FALSE(op);
    EXPECT_EQ(op.error().message, c.message);
  }
}

TEST(OperatorFile, RefusesWhatIsNotThere) {
  auto op = load_operator("/nonexistent/op.yaml");
  ASSERT_FALSE(op);
  EXPECT_EQ(op.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(op.error().message, "cannot read /nonexistent/op.yaml, expected an operator file");
}

TEST(OperatorFile, HoldsOneDocument) {
  const std::string one = kRight;
  EXPECT_TRUE(parse_operator("---\n" + one, "op.yaml"));
  EXPECT_TRUE(parse_operator(one + "---\n", "op.yaml"));
  EXPECT_TRUE(parse_operator(one + "...\n", "op.yaml"));
  const auto two = parse_operator(one + "---\n" + one, "op.yaml");
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().message,
            "op.yaml:16: a second document begins, expected one operator per file");
  // A bracket that closes nothing is an empty document to the parser, again and again.
  EXPECT_FALSE(parse_operator(", N]}\n" + one, "op.yaml"));
  EXPECT_FALSE(parse_operator(one + "]\n", "op.yaml"));
}

TEST(OperatorFile, ThatIsNoTextIsShownWithoutItsControlCharacters) {
  const auto binary = parse_operator(
      "\x7f"
      "ELF\x01\x1b[31m" +
          std::string(1000, 'x'),
      "op.yaml");
  ASSERT_FALSE(binary);
  for (const char c : binary.error().message) EXPECT_TRUE(c >= ' ' && c != 0x7f);
  EXPECT_LT(binary.error().message.size(), 300u);
}

TEST(OperatorFile, WhoseOutputsLieOnThemselvesAreToldAtTheirSizes) {
  const auto op = parse_operator(
      "operator: t\ndimensions: [M, ldy]\ninputs:\n  x: {shape: [M, 64], dtype: f32}\nbody:\n"
      "  - y = relu(x)\noutputs:\n  y: {dtype: f32, strides: [ldy, 1]}\n",
      "op.yaml");
  ASSERT_TRUE(op) << op.error().message;
  EXPECT_TRUE(check_output_places(*op, {{"M", 4}, {"ldy", 64}}));
  EXPECT_TRUE(check_output_places(*op, {{"M", 4}}));
  EXPECT_TRUE(check_output_places(*op, {{"M", 1}, {"ldy", 0}}));
  const auto apart = check_output_places(*op, {{"M", 4}, {"ldy", 8}});
  ASSERT_FALSE(apart);
  EXPECT_EQ(
      apart.error().message,
      "y stride 0 is 8, expected at least 64: elements of an output have places of their own");
}

TEST(OperatorFile, RefusesADirectory) { EXPECT_FALSE(load_operator("/")); }

TEST(OperatorFile, RefusesDeepNestingAndLongBodiesWithoutExhaustingTheStack) {
  std::string deep = "h";
  for (int i = 0; i < 5000; ++i) deep = "neg(" + deep + ")";
  std::string text = kRight;
  text.replace(text.find("add(h, 0.5)"), 11, deep);
  auto op = parse_operator(text, "op.yaml");
  ASSERT_FALSE(op);
  EXPECT_EQ(op.error().message, "op.yaml:10: statement nests more than 64 calls, expected fewer");
}

TEST(ShapeArguments, SplitIntoOverridesAndBindings) {
  std::filesystem::path file =
      std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs/operators/swiglu.yaml";
  auto split = split_shape_arguments(file, "M=16,N=512,T=f16");
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_EQ(split->overrides, (Overrides{{"N", "512"}, {"T", "f16"}}));
  EXPECT_EQ(split->bindings, (Bindings{{"M", 16}}));

  struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"M=16,L=3", "shape sets 'L', expected one of: M, T, N, K"},
      {"M=-1", "shape sets 'M' to '-1', expected a whole number of at least 0"},
      {"M=1.5", "shape sets 'M' to '1.5', expected a whole number of at least 0"},
      {"M=1,M=2", "shape sets 'M' twice, expected once"},
      {"M", "shape has 'M', expected NAME=VALUE separated by commas"},
  };
  for (const auto& c : cases) {
    auto refused = split_shape_arguments(file, c.text);
    ASSERT_FALSE(refused) << c.text;
    EXPECT_EQ(refused.error().message, c.message);
  }
}

}  // namespace
}  // namespace tilewright::templates
