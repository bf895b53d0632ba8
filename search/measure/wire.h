/// Trials, images and results to and from the tables of trial.fbs. Private to search/measure.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "search/measure/trial.h"
#include "search/measure/trial_generated.h"

namespace tilewright::search {

using ImageLookup = std::function<std::shared_ptr<const jit::Image>(const Digest&)>;

wire::TrialT to_wire(const Trial& trial);
/// Errors: kCorrupt for a plan or an operator that does not parse, or an image that `images` has
/// not got.
Result<Trial> from_wire(const wire::TrialT& trial, const ImageLookup& images);

wire::ImageT to_wire(const jit::Image& image);
Result<jit::Image> from_wire(const wire::ImageT& image);

wire::ResultT to_wire(const TrialResult& result);
TrialResult from_wire(const wire::ResultT& result);

std::unique_ptr<wire::ErrorT> to_wire(const Error& error);
Error from_wire(const wire::ErrorT& error);

std::string pack_image(const jit::Image& image);
Result<jit::Image> unpack_image(std::string_view bytes);

std::string pack_frame(const wire::FrameT& frame);
/// Errors: kCorrupt.
Result<wire::FrameT> unpack_frame(std::string_view bytes);

}  // namespace tilewright::search
