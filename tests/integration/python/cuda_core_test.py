"""cuda-core, NVIDIA's Pythonic layer over the driver API, on the virtual GPU: what its own examples do.

Kernels are compiled by NVRTC to PTX. Each check is a function; main runs them all, and names what failed.
"""

import sys
import traceback

import numpy as np
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, launch

CODE = """
template <typename T>
__global__ void add(T* out, T value, size_t n) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] += value;
}
"""
COUNT = 1000


def add_kernel(device):
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    code = Program(CODE, "c++", options).compile("ptx", name_expressions=("add<float>",))
    return code.get_kernel("add<float>")


def config():
    return LaunchConfig(grid=(COUNT + 255) // 256, block=256)


class Host:
    """Page-locked memory, seen as floats."""

    def __init__(self, device):
        from cuda.core import LegacyPinnedMemoryResource

        self.buffer = LegacyPinnedMemoryResource().allocate(4 * COUNT)
        self.values = np.from_dlpack(self.buffer).view(np.float32)


def check_launch(device):
    kernel, stream, host = add_kernel(device), device.create_stream(), Host(device)
    host.values[:] = np.arange(COUNT)
    buffer = device.allocate(4 * COUNT, stream=stream)
    buffer.copy_from(host.buffer, stream=stream)
    launch(stream, config(), kernel, buffer, np.float32(2.5), np.uint64(COUNT))
    buffer.copy_to(host.buffer, stream=stream)
    stream.sync()
    assert (host.values == np.arange(COUNT) + np.float32(2.5)).all()
    buffer.close(stream)
    assert kernel.attributes.max_threads_per_block == 1024


def check_events(device):
    kernel, stream, other = add_kernel(device), device.create_stream(), device.create_stream()
    host = Host(device)
    buffer = device.allocate(4 * COUNT, stream=stream)
    buffer.fill(0, stream=stream)
    options = EventOptions(timing_enabled=True)
    begin = stream.record(options=options)
    launch(stream, config(), kernel, buffer, np.float32(1), np.uint64(COUNT))
    end = stream.record(options=options)
    other.wait(end)
    launch(other, config(), kernel, buffer, np.float32(2), np.uint64(COUNT))
    buffer.copy_to(host.buffer, stream=other)
    other.sync()
    assert end.is_done and end - begin > 0
    assert (host.values == 3).all()


def check_graph(device):
    kernel, stream, host = add_kernel(device), device.create_stream(), Host(device)
    buffer = device.allocate(4 * COUNT, stream=stream)
    buffer.fill(0, stream=stream)
    stream.sync()
    builder = device.create_graph_builder().begin_building()
    for value in (1, 10):
        launch(builder, config(), kernel, buffer, np.float32(value), np.uint64(COUNT))
    graph = builder.end_building().complete()
    for _ in range(3):
        graph.launch(stream)
    buffer.copy_to(host.buffer, stream=stream)
    stream.sync()
    assert (host.values == 33).all()


def main():
    try:
        load_nvidia_dynamic_lib("nvrtc")
    except DynamicLibNotFoundError as error:
        print(f"skipped: cuda-core finds no NVRTC: {error}")
        sys.exit(77)
    device = Device()
    device.set_current()
    assert "(virtual)" in device.name
    failed = 0
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    for check in checks:
        try:
            check(device)
            print(f"{check.__name__}: ok")
        except Exception:
            failed += 1
            print(f"{check.__name__}: FAILED")
            traceback.print_exc()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
