"""What the programs share: cuda-python's driver API with errors as exceptions, and buffers."""

import ctypes
import json

import numpy as np
from cuda.bindings import driver


def ok(answer):
    """The results of a call without its error; an exception where there is one."""
    error, *results = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{error.name}: {report()}")
    return results[0] if len(results) == 1 else tuple(results)


def report():
    """Why the last call failed, in the words of the virtual GPU."""
    library = ctypes.CDLL("libcuda.so.1")
    library.tilewrightVgpuReport.restype = ctypes.c_char_p
    return library.tilewrightVgpuReport().decode()


def reports():
    """What the checks have found since they were last asked."""
    library = ctypes.CDLL("libcuda.so.1")
    library.tilewrightVgpuReports.restype = ctypes.c_char_p
    return json.loads(library.tilewrightVgpuReports().decode())


def set_schedule(seed):
    """Full checks, and in which order warps take turns."""
    library = ctypes.CDLL("libcuda.so.1")
    library.tilewrightVgpuSetChecks.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    if library.tilewrightVgpuSetChecks(b"full", seed) != 0:
        raise RuntimeError(report())


def start():
    """Initialises, and makes the primary context current."""
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
    return device


_made = []


def made(destroy, handle):
    """`handle`, which release() will destroy."""
    _made.append((destroy, handle))
    return handle


def release():
    """Destroys what was made, the last one first: nothing is to leak."""
    while _made:
        destroy, handle = _made.pop()
        ok(destroy(handle))


def forget():
    """After a fault: what was made has ended with its context."""
    _made.clear()


def upload(array):
    """Device memory that holds `array`, until release()."""
    array = np.ascontiguousarray(array)
    address = made(driver.cuMemFree, ok(driver.cuMemAlloc(array.nbytes)))
    ok(driver.cuMemcpyHtoD(address, array.ctypes.data, array.nbytes))
    return address


def download(address, shape, dtype):
    array = np.empty(shape, dtype)
    ok(driver.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes))
    return array


def parameters(*values):
    """Kernel parameters by value: ctypes objects, or device addresses."""
    values = [v if isinstance(v, ctypes._SimpleCData) else ctypes.c_void_p(int(v)) for v in values]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    pointers.values = values  # keeps them alive
    return pointers
