#!/usr/bin/env bash
# run.sh FOLDER LIBRARY PROGRAM [ARGUMENT...]: runs a Python program with the virtual GPU in the place
# of libcuda and NVML.
#
# FOLDER holds the environment that it runs in: made once, from requirements.txt, and again when that
# changes. Exits with 77, saying why, where Python or PyPI are out of reach.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 library=$2 program=$3
shift 3

skip() {
  echo "skipped: $*"
  exit 77
}

# make_environment: in a folder of its own, that takes its place when it is complete.
make_environment() {
  local fresh=$folder/environment.$$
  command -v python3 > /dev/null || skip "there is no python3"
  python3 -m venv "$fresh" 2> "$folder/log" || skip "python3 -m venv: $(tail -1 "$folder/log")"
  if ! "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --retries 1 --timeout 20 --requirement "$here/requirements.txt" > "$folder/log" 2>&1; then
    rm -rf "$fresh"
    skip "PyPI is out of reach, or has not what requirements.txt names: $(tail -1 "$folder/log")"
  fi
  rm -rf "$folder/environment"
  mv "$fresh" "$folder/environment"
  cp "$here/requirements.txt" "$folder/stamp"
}

mkdir -p "$folder/lib"
(
  flock 9
  cmp -s "$here/requirements.txt" "$folder/stamp" || make_environment
  for name in libcuda.so.1 libnvidia-ml.so.1; do
    ln -sfn "$library" "$folder/lib/$name"
  done
) 9> "$folder/lock" || exit $?

export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Triton caches what it compiles.
export TRITON_CACHE_DIR=$folder/triton PYTHONDONTWRITEBYTECODE=1
exec "$folder/environment/bin/python" "$program" "$@"
