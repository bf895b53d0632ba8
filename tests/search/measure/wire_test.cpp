#include "search/measure/wire.h"

#include <gtest/gtest.h>

#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

TEST(Wire, ATrialArrivesAsItWasSent) {
  Trial trial = planted::uncompiled("a");
  trial.seed = 9;
  trial.verify = {.integer = false, .normal = true, .adversarial = true, .max_elements = 17};
  trial.measure = {.repeats = 3,
                   .budget_ms = 4.5,
                   .graph = true,
                   .cold_l2 = false,
                   .deadline_s = 2.5,
                   .cut_off_us = 1.25,
                   .sample_blocks = 6};
  trial.timed = false;
  trial.displacement = {{"a", 4}, {"y", 8}};
  trial.inputs = digest_of("inputs");
  const auto image = trial.images[0];
  Trial::Anchor anchor{planted::uncompiled("b").plan, {image}};
  anchor.plan.legal = {"M <= 7"};
  trial.anchor = std::make_shared<const Trial::Anchor>(anchor);
  const auto back = from_wire(to_wire(trial), [&](const Digest& digest) {
    return digest == image->digest ? image : nullptr;
  });
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->id, trial.id);
  EXPECT_EQ(templates::print(*back->op), templates::print(*trial.op));
  EXPECT_EQ(back->bindings, trial.bindings);
  EXPECT_EQ(back->plan, trial.plan);
  EXPECT_EQ(back->images, trial.images);
  EXPECT_EQ(back->seed, trial.seed);
  EXPECT_EQ(back->verify.integer, false);
  EXPECT_EQ(back->verify.adversarial, true);
  EXPECT_EQ(back->verify.max_elements, 17);
  EXPECT_EQ(back->measure.repeats, 3);
  EXPECT_EQ(back->measure.budget_ms, 4.5);
  EXPECT_EQ(back->measure.graph, true);
  EXPECT_EQ(back->measure.cold_l2, false);
  EXPECT_EQ(back->measure.deadline_s, 2.5);
  EXPECT_EQ(back->measure.cut_off_us, 1.25);
  EXPECT_EQ(back->measure.sample_blocks, 6u);
  EXPECT_EQ(back->timed, false);
  EXPECT_EQ(back->displacement, trial.displacement);
  EXPECT_EQ(back->inputs, trial.inputs);
  ASSERT_TRUE(back->anchor);
  EXPECT_EQ(back->anchor->plan, anchor.plan);
  EXPECT_EQ(back->anchor->images, anchor.images);

  const auto without = from_wire(to_wire(trial), [](const Digest&) { return nullptr; });
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().message, "trial a: image " + image->digest.hex() + " is not here");
}

TEST(Wire, AnImageArrivesAsItWasSent) {
  jit::Image image = *planted::uncompiled("a").images[0];
  image.cubin = std::string(
      "\0\x7f"
      "ELF\0",
      6);
  image.log = "ptxas info";
  image.compile_ms = 12.5;
  const auto back = unpack_image(pack_image(image));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->digest, image.digest);
  EXPECT_EQ(back->architecture, image.architecture);
  EXPECT_EQ(back->ptx, image.ptx);
  EXPECT_EQ(back->cubin, image.cubin);
  EXPECT_EQ(back->log, image.log);
  EXPECT_EQ(back->kernels, image.kernels);
  EXPECT_EQ(back->compile_ms, image.compile_ms);
}

TEST(Wire, AResultArrivesAsItWasSent) {
  TrialResult result;
  result.id = "a";
  result.failure = Error{ErrorCode::kFault, "message", "detail"};
  result.verification = {.verified = true,
                         .elements = 3,
                         .total_elements = 4,
                         .error = 0.5,
                         .tolerance = 0.75,
                         .worst_ratio = 0.9,
                         .sampled = true};
  result.sample.times_us = {3, 1, 2};
  result.sample.cut_off = result.sample.modelled = result.sample.graph = true;
  result.sample.cold_l2 = false;
  result.sample.bound_by = "dram";
  result.sample.bound_fraction = 0.5;
  result.seconds = 1.5;
  const TrialResult back = from_wire(to_wire(result));
  EXPECT_EQ(back.id, "a");
  EXPECT_EQ(back.failure, result.failure);
  EXPECT_EQ(back.verification.elements, 3);
  EXPECT_EQ(back.verification.worst_ratio, 0.9);
  EXPECT_TRUE(back.verification.sampled);
  EXPECT_EQ(back.sample.times_us, result.sample.times_us);
  EXPECT_EQ(back.sample.time_us, 2);
  EXPECT_TRUE(back.sample.cut_off && back.sample.modelled && back.sample.graph);
  EXPECT_FALSE(back.sample.cold_l2);
  EXPECT_EQ(back.sample.bound_by, "dram");
  EXPECT_EQ(back.sample.bound_fraction, 0.5);
  EXPECT_EQ(back.seconds, 1.5);
}

TEST(Wire, BytesThatAreNoFrameAreRefused) {
  wire::FrameT frame;
  frame.body.Set(wire::OpenT{});
  const std::string good = pack_frame(frame);
  EXPECT_TRUE(unpack_frame(good));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(unpack_frame(good.substr(0, length))) << length;
  EXPECT_FALSE(unpack_frame(std::string(64, 'x')));
  EXPECT_FALSE(unpack_image(std::string(64, 'x')));
}

}  // namespace
}  // namespace tilewright::search
