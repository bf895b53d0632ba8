# shellcheck shell=bash
# Set-up steps that ./quickstart and ./check share. Sourced by bash, in the repository's root.
# Every step says what it does, asks nothing, and does nothing that is already done.
#
# TILEWRIGHT_IGNORE_TOOLKIT=1   an installed CUDA toolkit is not used: NVIDIA's wheels are

set -euo pipefail

# Debian 12 packages. Debian has no archives of fmt and spdlog, which are used header-only.
PACKAGES=(
  cmake ninja-build g++ ccache mold            # build
  clang-format-14                              # the format check
  libboost1.81-dev libexpected-dev nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev
  libflatbuffers-dev flatbuffers-compiler libyaml-cpp-dev libxxhash-dev
  librocksdb-dev libzstd-dev libsnappy-dev libbz2-dev liblz4-dev zlib1g-dev
  llvm-19-dev libclang-19-dev                  # reads the kernel templates
  libgtest-dev libgmock-dev libbenchmark-dev   # tests and benchmarks
  python3 python3-venv                         # tests with programs of others, from PyPI
)

# NVRTC and cuda.h, where no toolkit has them.
WHEELS=(nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.88)
OLDEST_CUDA=12080  # CUDA_VERSION of cuda.h

STEPS=()

# timed NAME COMMAND...: runs a step and remembers its seconds.
timed() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@"
  STEPS+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

print_steps() {
  printf '\n== seconds\n'
  printf '%s\n' "${STEPS[@]}"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# install PACKAGE...: those that are missing.
install() {
  local missing=() package
  for package in "$@"; do
    if ! dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} = 0 ]; then
    echo "all $# packages are there"
    return
  fi
  echo "installing with apt-get: ${missing[*]}"
  # Names may be unknown, or known at a version that the mirror has no more: look again first.
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "this is no Debian: install by hand what is missing of: ${PACKAGES[*]}"
    return
  fi
  install "${PACKAGES[@]}"
}

# has_cuda ROOT: headers and NVRTC of a version that is new enough.
has_cuda() {
  local root=$1 version
  [ -f "$root/include/nvrtc.h" ] && [ -f "$root/include/cuda.h" ] || return 1
  compgen -G "$root/lib*/libnvrtc.so*" >/dev/null || return 1
  version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$root/include/cuda.h")
  [ "${version:-0}" -ge $OLDEST_CUDA ]
}

# Sets CUDA_ROOT: an installed toolkit, else the wheels, unpacked into build/cuda.
find_cuda() {
  local root
  if [ "${TILEWRIGHT_IGNORE_TOOLKIT:-0}" != 1 ]; then
    for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
      if [ -n "$root" ] && has_cuda "$root"; then
        CUDA_ROOT=$root
        echo "using the CUDA toolkit in $root"
        return
      fi
    done
  fi
  CUDA_ROOT=$PWD/build/cuda
  if [ -f "$CUDA_ROOT/wheels.txt" ] && [ "$(cat "$CUDA_ROOT/wheels.txt")" = "${WHEELS[*]}" ]; then
    echo "using NVIDIA's wheels in $CUDA_ROOT"
    return
  fi
  python3 -m pip --version >/dev/null 2>&1 || install python3-pip
  echo "no CUDA toolkit: downloading ${WHEELS[*]}"
  rm -rf "$CUDA_ROOT"
  mkdir -p "$CUDA_ROOT/wheels"
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
    -d "$CUDA_ROOT/wheels" "${WHEELS[@]}"
  local wheel
  for wheel in "$CUDA_ROOT"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$CUDA_ROOT/wheels"
  done
  mv "$CUDA_ROOT"/wheels/nvidia/cu13/* "$CUDA_ROOT"
  rm -rf "$CUDA_ROOT/wheels"
  printf '%s' "${WHEELS[*]}" >"$CUDA_ROOT/wheels.txt"
  has_cuda "$CUDA_ROOT" || { echo "the wheels hold no NVRTC or no headers" >&2; return 1; }
  echo "using NVIDIA's wheels, unpacked into $CUDA_ROOT"
}

# configure PRESET. Paths that an earlier CUDA_ROOT left in the cache are looked for again.
configure() {
  cmake --preset "$1" -U 'TILEWRIGHT_*_INCLUDE_DIR' -DTILEWRIGHT_CUDA_ROOT="$CUDA_ROOT"
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  cmake --build --preset "$preset" ${1:+--target "$@"}
}

check_format() {
  local clang_format=clang-format-14 files
  command -v $clang_format >/dev/null || clang_format=clang-format
  mapfile -t files < <(find . -name 'build' -prune -o -name '.?*' -prune -o \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cuh' \) -print)
  $clang_format --dry-run --Werror "${files[@]}"
  echo "${#files[@]} files are formatted"
}
