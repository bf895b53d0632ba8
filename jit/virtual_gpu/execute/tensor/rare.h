/// What sparse mma and sparse wgmma share: elements one by one, and where the metadata of a row is.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/program/rare_form.h"

namespace tilewright::vgpu {

/// The value of an element whose bits are the lowest of `bits`.
float rare_value(Element element, std::uint32_t bits);
/// ue8m0 or ue4m3.
double scale_value(bool e4m3, std::uint32_t bits);

/// The columns of a row of a sparse A of `k` columns that its k / 2 elements stand for. `words`: the
/// metadata of the 32 lanes. False: metadata that PTX leaves undefined.
///
/// PTX ISA, "Sparse matrix storage" gives the indices; its figures, of which CuTe's ELayout of
/// mma_traits_sm90_gmma_sparse.hpp and mma_traits_sm120_sparse.hpp are the text, where they are: of
/// 16-bit and wider elements a word has four chunks of row g in its low half, and of row g + 8 in its
/// high half; words of other chunks follow by lane. Of narrower ones a word has eight chunks of a row:
/// lanes 0 and 1 of four have rows g and g + 8, lanes 2 and 3 the next eight chunks. The shapes of
/// half the k, which CuTe does not have, are taken to be the first half of the others, `selector`
/// saying which lanes have it.
bool sparse_columns(Element element, int k, int selector, bool ordered, int row,
                    const std::uint32_t* words, std::uint8_t* columns);

}  // namespace tilewright::vgpu
