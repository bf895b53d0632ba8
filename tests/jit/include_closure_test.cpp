#include "jit/include_closure.h"

#include <gtest/gtest.h>

namespace tilewright::jit {
namespace {

using Names = std::vector<std::string>;

const HeaderSet kHeaders = {
    {"kernels/gemm.cuh",
     "#pragma once\n#include \"device/types.cuh\"\n#include \"device/copy.cuh\"\n"},
    {"kernels/rows.cuh", "#include \"device/types.cuh\"\n"},
    {"device/types.cuh", "struct T {};\n"},
    {"device/copy.cuh", "#include \"device/types.cuh\"\n#include \"device/copy.cuh\"\n"},
    {"device/unused.cuh", "\n"},
};
const Source kSource = {"x.cu", "#include \"kernels/gemm.cuh\"\nkernel"};
const CompileOptions kOptions = {{9, 0, true}, {}, true};

TEST(IncludeClosure, FindsTheNamesInIncludeLines) {
  EXPECT_EQ(direct_includes("#include \"a.cuh\"\n  #  include <b.cuh> // why\n#define X\n"
                            "int x; // #include \"no\"\n#include\"c.cuh\""),
            (Names{"a.cuh", "b.cuh", "c.cuh"}));
  EXPECT_EQ(direct_includes("#\n#include\n#include \"open\n#includes \"x\"\n"), Names{});
}

TEST(IncludeClosure, FollowsIncludesOnceAndNamesWhatIsMissing) {
  const HeaderIndex index(kHeaders);
  EXPECT_EQ(index.closure(kSource.text),
            (Names{"device/copy.cuh", "device/types.cuh", "kernels/gemm.cuh"}));
  EXPECT_EQ(index.closure("#include \"kernels/none.cuh\"\n"), Names{"kernels/none.cuh"});
}

TEST(ImageDigest, ChangesWithEverythingThatMakesTheImageAndWithNothingElse) {
  const Digest digest = HeaderIndex(kHeaders).image_digest(kSource, kOptions, "13.0.88");
  auto with = [&](auto change) {
    HeaderSet headers = kHeaders;
    Source source = kSource;
    CompileOptions options = kOptions;
    std::string version = "13.0.88";
    change(headers, source, options, version);
    return HeaderIndex(headers).image_digest(source, options, version);
  };
  using H = HeaderSet;
  using S = Source;
  using O = CompileOptions;
  using V = std::string;
  EXPECT_EQ(with([](H&, S&, O&, V&) {}), digest);
  EXPECT_EQ(with([](H&, S& s, O&, V&) { s.name = "other.cu"; }), digest);
  EXPECT_EQ(with([](H& h, S&, O&, V&) { h["device/unused.cuh"] = "changed"; }), digest);
  EXPECT_EQ(with([](H& h, S&, O&, V&) { h["kernels/rows.cuh"] += "changed"; }), digest);

  EXPECT_NE(with([](H&, S& s, O&, V&) { s.text += " "; }), digest);
  EXPECT_NE(with([](H& h, S&, O&, V&) { h["device/types.cuh"] += " "; }), digest) << "indirect";
  EXPECT_NE(with([](H&, S&, O& o, V&) { o.architecture = {9, 0, false}; }), digest);
  EXPECT_NE(with([](H&, S&, O& o, V&) { o.flags = {"-maxrregcount=64"}; }), digest);
  EXPECT_NE(with([](H&, S&, O& o, V&) { o.cubin = false; }), digest);
  EXPECT_NE(with([](H&, S&, O&, V& v) { v = "13.0.48"; }), digest);

  auto lines = [](std::string name) {
    return [name](H&, S& s, O& o, V&) {
      o.flags = {"-lineinfo"};
      s.name = name;
    };
  };
  EXPECT_NE(with(lines("a.cu")), with(lines("b.cu"))) << "line information names the source";
}

}  // namespace
}  // namespace tilewright::jit
