"""cuda-python, which knows NVIDIA's driver only, on the virtual GPU: every call that a launcher makes.

Each check is a function; main runs them all, and names what failed.
"""

import ctypes
import sys
import traceback

import numpy as np

from vgpu import download, driver, forget, made, ok, parameters, release, reports, start, upload

KERNELS = b"""
.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 counter = 5;

// add(out, value, n): out[i] += value for the n floats at out.
.visible .entry add(.param .u64 out, .param .f32 value, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f1, [value];
  ld.param.u32 %r5, [n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p1, %r4, %r5;
  @%p1 bra $done;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.f32 %f2, [%rd3];
  add.f32 %f2, %f2, %f1;
  st.global.f32 [%rd3], %f2;
$done:
  ret;
}

// clusters(out): out[block] = blocks of its cluster.
.visible .entry clusters(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_nctarank;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}
\0"""

INT, FLOAT = ctypes.c_uint32, ctypes.c_float
ATTRIBUTE = driver.CUdevice_attribute
RESULT = driver.CUresult


def refused(answer, expected):
    assert answer[0] == expected, f"{answer[0].name}, expected {expected.name}"


class Add:
    """The kernel `add`, in a module of the current context."""

    def __init__(self):
        self.module = made(driver.cuModuleUnload, ok(driver.cuModuleLoadData(KERNELS)))
        self.function = ok(driver.cuModuleGetFunction(self.module, b"add"))

    def __call__(self, address, value, count, stream=0):
        packed = parameters(address, FLOAT(value), INT(count))
        ok(driver.cuLaunchKernel(self.function, -(-count // 64), 1, 1, 64, 1, 1, 0, stream,
                                 ctypes.addressof(packed), 0))


def check_device(device):
    assert ok(driver.cuDeviceGetCount()) == 1
    assert b"(virtual)" in ok(driver.cuDeviceGetName(64, device))
    assert ok(driver.cuDeviceTotalMem(device)) > 1 << 30
    assert len(set(ok(driver.cuDeviceGetUuid(device)).bytes)) > 1
    major = ok(driver.cuDeviceGetAttribute(ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                           device))
    assert major == 9
    for name, expected in {"WARP_SIZE": 32, "MAX_THREADS_PER_BLOCK": 1024, "CLUSTER_LAUNCH": 1,
                           "COOPERATIVE_LAUNCH": 1, "MEMORY_POOLS_SUPPORTED": 1,
                           "MANAGED_MEMORY": 1, "UNIFIED_ADDRESSING": 1}.items():
        value = ok(driver.cuDeviceGetAttribute(getattr(ATTRIBUTE, f"CU_DEVICE_ATTRIBUTE_{name}"), device))
        assert value == expected, (name, value)
    bus = ok(driver.cuDeviceGetPCIBusId(32, device)).split(b"\0")[0]
    assert int(ok(driver.cuDeviceGetByPCIBusId(bus))) == 0
    refused(driver.cuDeviceGet(1), RESULT.CUDA_ERROR_INVALID_DEVICE)
    assert ok(driver.cuGetErrorName(RESULT.CUDA_ERROR_OUT_OF_MEMORY)) == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert ok(driver.cuGetErrorString(RESULT.CUDA_ERROR_OUT_OF_MEMORY)) == b"out of memory"


def check_contexts(device):
    primary = ok(driver.cuCtxGetCurrent())
    own = ok(driver.cuCtxCreate(None, 0, device))
    assert int(ok(driver.cuCtxGetCurrent())) == int(own) != int(primary)
    limit = driver.CUlimit.CU_LIMIT_STACK_SIZE
    ok(driver.cuCtxSetLimit(limit, 4096))
    assert ok(driver.cuCtxGetLimit(limit)) == 4096
    add = Add()
    data = upload(np.zeros(10, np.float32))
    add(data, 2.0, 10)
    assert (download(data, 10, np.float32) == 2).all()
    release()
    assert int(ok(driver.cuCtxPopCurrent())) == int(own)
    assert int(ok(driver.cuCtxGetCurrent())) == int(primary)
    ok(driver.cuCtxPushCurrent(own))
    ok(driver.cuCtxDestroy(own))
    refused(driver.cuCtxPushCurrent(own), RESULT.CUDA_ERROR_INVALID_CONTEXT)


def check_modules(device):
    add = Add()
    address, size = ok(driver.cuModuleGetGlobal(add.module, b"counter"))
    assert size == 4 and download(address, 1, np.uint32)[0] == 5
    refused(driver.cuModuleGetGlobal(add.module, b"nothing"), RESULT.CUDA_ERROR_NOT_FOUND)
    attribute = driver.CUfunction_attribute
    assert ok(driver.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION,
                                        add.function)) == 80
    assert ok(driver.cuFuncGetName(add.function)) == b"add"
    log = bytes(4096)
    option = driver.CUjit_option
    refused(driver.cuModuleLoadDataEx(
        KERNELS.replace(b"mad.lo.s32", b"mud.lo.s32"), 2,
        [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
        [log, len(log)]), RESULT.CUDA_ERROR_INVALID_PTX)
    assert b"mud" in log
    refused(driver.cuModuleLoadData(b"\x7fELF" + bytes(60)), RESULT.CUDA_ERROR_NO_BINARY_FOR_GPU)
    release()


def check_libraries(device):
    library = ok(driver.cuLibraryLoadData(KERNELS, None, None, 0, None, None, 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"add"))
    refused(driver.cuLibraryGetKernel(library, b"sub"), RESULT.CUDA_ERROR_NOT_FOUND)
    function = ok(driver.cuKernelGetFunction(kernel))
    data = upload(np.ones(5, np.float32))
    packed = parameters(data, FLOAT(1.5), INT(5))
    for launched in (function, driver.CUfunction(int(kernel))):  # a kernel is launched as a function
        ok(driver.cuLaunchKernel(launched, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(packed), 0))
    assert (download(data, 5, np.float32) == 4).all()
    ok(driver.cuLibraryUnload(library))


def check_memory(device):
    free, total = ok(driver.cuMemGetInfo())
    assert 0 < free <= total
    rows, columns = 5, 7
    address, pitch = ok(driver.cuMemAllocPitch(4 * columns, rows, 4))
    assert pitch >= 4 * columns and pitch % 256 == 0
    source = np.arange(rows * columns, dtype=np.uint32).reshape(rows, columns)
    copy = driver.CUDA_MEMCPY2D()
    copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost, copy.srcPitch = source.ctypes.data, 4 * columns
    copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice, copy.dstPitch = address, pitch
    copy.WidthInBytes, copy.Height = 4 * columns, rows
    ok(driver.cuMemcpy2D(copy))
    padded = download(address, rows * pitch // 4, np.uint32).reshape(rows, -1)
    assert (padded[:, :columns] == source).all()
    ok(driver.cuMemsetD2D8(address, pitch, 0xAB, 4 * columns, rows - 1))
    padded = download(address, rows * pitch // 4, np.uint32).reshape(rows, -1)
    assert (padded[:-1, :columns] == 0xABABABAB).all() and (padded[-1, :columns] == source[-1]).all()

    attribute = driver.CUpointer_attribute
    assert ok(driver.cuPointerGetAttribute(attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           address)) == driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    base, size = ok(driver.cuMemGetAddressRange(int(address) + 100))
    assert int(base) == int(address) and size == rows * pitch
    ok(driver.cuMemFree(address))
    refused(driver.cuMemFree(address), RESULT.CUDA_ERROR_INVALID_VALUE)

    data = upload(np.zeros(8, np.uint16))
    ok(driver.cuMemsetD16(data, 0x1234, 4))
    ok(driver.cuMemsetD32(int(data) + 8, 0x55667788, 1))
    assert list(download(data, 8, np.uint16)) == [0x1234] * 4 + [0x7788, 0x5566, 0, 0]
    other = upload(np.zeros(8, np.uint16))
    ok(driver.cuMemcpy(other, data, 16))
    ok(driver.cuMemcpyDtoD(int(other) + 8, data, 8))
    assert list(download(other, 8, np.uint16)) == [0x1234] * 8

    # Host memory that kernels reach.
    host = ok(driver.cuMemHostAlloc(40, driver.CU_MEMHOSTALLOC_DEVICEMAP))
    view = np.ctypeslib.as_array(ctypes.cast(int(host), ctypes.POINTER(FLOAT)), (10,))
    view[:] = 1
    Add()(ok(driver.cuMemHostGetDevicePointer(host, 0)), 3.0, 10)
    ok(driver.cuCtxSynchronize())
    assert (view == 4).all()
    ok(driver.cuMemFreeHost(host))


def check_pools(device):
    stream = ok(driver.cuStreamCreate(0))
    pool = ok(driver.cuDeviceGetDefaultMemPool(device))
    attribute = driver.CUmemPool_attribute
    before = int(ok(driver.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)))
    data = ok(driver.cuMemAllocAsync(400, stream))
    used = int(ok(driver.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)))
    assert used == before + 400
    ok(driver.cuMemsetD32Async(data, 0, 100, stream))
    Add()(data, 1.0, 100, stream)
    ok(driver.cuStreamSynchronize(stream))
    assert (download(data, 100, np.float32) == 1).all()
    ok(driver.cuMemFreeAsync(data, stream))
    ok(driver.cuStreamDestroy(stream))


def check_streams(device):
    add = Add()
    least, greatest = ok(driver.cuCtxGetStreamPriorityRange())
    assert greatest < least
    first = made(driver.cuStreamDestroy,
                 ok(driver.cuStreamCreateWithPriority(
                     driver.CUstream_flags.CU_STREAM_NON_BLOCKING, greatest)))
    assert ok(driver.cuStreamGetPriority(first)) == greatest
    second = made(driver.cuStreamDestroy, ok(driver.cuStreamCreate(0)))
    data = upload(np.zeros(300, np.float32))
    begin, end = (made(driver.cuEventDestroy, ok(driver.cuEventCreate(0))) for _ in range(2))
    ok(driver.cuEventRecord(begin, first))
    add(data, 1.0, 300, first)
    ok(driver.cuEventRecord(end, first))
    ok(driver.cuStreamWaitEvent(second, end, 0))
    add(data, 2.0, 300, second)
    while driver.cuStreamQuery(second)[0] == RESULT.CUDA_ERROR_NOT_READY:
        pass
    ok(driver.cuStreamQuery(second))
    ok(driver.cuEventSynchronize(end))
    assert ok(driver.cuEventElapsedTime(begin, end)) > 0
    called = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    ok(driver.cuLaunchHostFunc(second, ctypes.cast(callback, ctypes.c_void_p).value, 7))
    ok(driver.cuStreamSynchronize(second))
    assert called == [7]
    assert (download(data, 300, np.float32) == 3).all()


def check_capture(device):
    add = Add()
    stream = made(driver.cuStreamDestroy, ok(driver.cuStreamCreate(0)))
    data = upload(np.zeros(64, np.float32))
    ok(driver.cuStreamBeginCapture(stream,
                                   driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    for value in (1.0, 10.0):
        add(data, value, 64, stream)
    graph = made(driver.cuGraphDestroy, ok(driver.cuStreamEndCapture(stream)))
    instance = made(driver.cuGraphExecDestroy, ok(driver.cuGraphInstantiate(graph, 0)))
    for _ in range(3):
        ok(driver.cuGraphLaunch(instance, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (download(data, 64, np.float32) == 33).all()


def check_graph(device):
    add = Add()
    data = upload(np.zeros(64, np.float32))
    kept = []

    def node_of(value):
        node = driver.CUDA_KERNEL_NODE_PARAMS()
        node.func = add.function
        node.gridDimX = node.gridDimY = node.gridDimZ = 1
        node.blockDimX, node.blockDimY, node.blockDimZ = 64, 1, 1
        kept.append(parameters(data, FLOAT(value), INT(64)))
        node.kernelParams = ctypes.addressof(kept[-1])
        return node

    graph = ok(driver.cuGraphCreate(0))
    clear = driver.CUDA_MEMSET_NODE_PARAMS()
    clear.dst, clear.value, clear.elementSize, clear.width, clear.height = data, 0, 4, 64, 1
    context = ok(driver.cuCtxGetCurrent())
    cleared = ok(driver.cuGraphAddMemsetNode(graph, None, 0, clear, context))
    added = ok(driver.cuGraphAddKernelNode(graph, [cleared], 1, node_of(2.0)))
    inner = ok(driver.cuGraphCreate(0))
    ok(driver.cuGraphAddKernelNode(inner, None, 0, node_of(100.0)))
    ok(driver.cuGraphAddChildGraphNode(graph, [added], 1, inner))
    assert ok(driver.cuGraphNodeGetType(added)) == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    instance = made(driver.cuGraphExecDestroy, ok(driver.cuGraphInstantiate(graph, 0)))
    ok(driver.cuGraphLaunch(instance, 0))
    assert (download(data, 64, np.float32) == 102).all()
    ok(driver.cuGraphExecKernelNodeSetParams(instance, added, node_of(5.0)))
    ok(driver.cuGraphLaunch(instance, 0))
    assert (download(data, 64, np.float32) == 105).all()
    clone = ok(driver.cuGraphClone(graph))
    copied = made(driver.cuGraphExecDestroy, ok(driver.cuGraphInstantiate(clone, 0)))
    ok(driver.cuGraphLaunch(copied, 0))
    assert (download(data, 64, np.float32) == 102).all()
    for each in (clone, graph, inner):
        ok(driver.cuGraphDestroy(each))


def check_clusters(device):
    module = made(driver.cuModuleUnload, ok(driver.cuModuleLoadData(
        KERNELS.replace(b".target sm_80", b".target sm_90"))))
    function = ok(driver.cuModuleGetFunction(module, b"clusters"))
    data = upload(np.zeros(8, np.uint32))
    packed = parameters(data)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 8, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    value = driver.CUlaunchAttributeValue()

    def launch(size):
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = size, 1, 1
        attribute.value = value
        config.attrs, config.numAttrs = [attribute], 1
        return driver.cuLaunchKernelEx(config, function, ctypes.addressof(packed), 0)

    ok(launch(4))
    assert (download(data, 8, np.uint32) == 4).all()
    refused(launch(3), RESULT.CUDA_ERROR_INVALID_VALUE)
    assert launch(16)[0] != RESULT.CUDA_SUCCESS
    ok(driver.cuLaunchCooperativeKernel(function, 8, 1, 1, 32, 1, 1, 0, 0,
                                        ctypes.addressof(packed)))
    refused(driver.cuLaunchCooperativeKernel(function, 1 << 20, 1, 1, 32, 1, 1, 0, 0,
                                             ctypes.addressof(packed)),
            RESULT.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)


def check_tensor_map(device):
    data = upload(np.zeros((64, 64), np.float16))
    encoded = ok(driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, int(data),
        [driver.cuuint64_t(64), driver.cuuint64_t(64)], [driver.cuuint64_t(128)],
        [driver.cuuint32_t(32), driver.cuuint32_t(8)], [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
    assert any(int(word) for word in encoded.opaque)
    columns = ok(driver.cuTensorMapEncodeIm2col(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, int(data),
        [driver.cuuint64_t(size) for size in (16, 8, 8, 4)],
        [driver.cuuint64_t(stride) for stride in (32, 256, 2048)], [-1, -1], [-1, -1],
        driver.cuuint32_t(16), driver.cuuint32_t(32), [driver.cuuint32_t(1)] * 4,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
    assert any(int(word) for word in columns.opaque)


def check_management(device):
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit_v2() == 0
    handle = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    name, number = ctypes.create_string_buffer(96), ctypes.c_uint()
    assert library.nvmlDeviceGetName(handle, name, 96) == 0 and b"(virtual)" in name.value
    assert library.nvmlDeviceGetUUID(handle, name, 96) == 0
    uuid = bytes(byte & 0xFF for byte in ok(driver.cuDeviceGetUuid(device)).bytes)
    assert name.value.decode().removeprefix("GPU-").replace("-", "") == uuid.hex()
    assert library.nvmlDeviceGetClockInfo(handle, 1, ctypes.byref(number)) == 0
    rate = ok(driver.cuDeviceGetAttribute(ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device))
    assert number.value == rate // 1000
    assert library.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(number)) == 0
    assert library.nvmlShutdown() == 0


def check_errors(device):
    # Last: the context is lost after it.
    add = Add()
    add(8, 1.0, 64)
    refused(driver.cuCtxSynchronize(), RESULT.CUDA_ERROR_ILLEGAL_ADDRESS)
    ok(driver.cuDevicePrimaryCtxReset(device))
    ok(driver.cuCtxSynchronize())
    forget()
    found = reports()
    assert not found or [each["check"] for each in found] == ["out-of-bounds"], found


def main():
    device = start()
    failed = 0
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    for check in checks:
        try:
            check(device)
            release()
            found = reports()
            assert not found, "\n".join(each["text"] for each in found)
            print(f"{check.__name__}: ok")
        except Exception:
            failed += 1
            print(f"{check.__name__}: FAILED")
            traceback.print_exc()
    ok(driver.cuDevicePrimaryCtxRelease(device))
    for leak in reports():
        failed += 1
        print(leak["text"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
