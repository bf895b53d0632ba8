/// A random number for every counter: data and choices are functions of a seed, in any order.
#pragma once

#include <cstdint>

namespace tilewright::search {

/// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
inline std::uint64_t counter_hash(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace tilewright::search
