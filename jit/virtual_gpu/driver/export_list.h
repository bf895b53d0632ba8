/// What the library exports of the driver API beyond TILEWRIGHT_DRIVER_FUNCTIONS (jit/driver_api.h),
/// which is what the product calls.
#pragma once

// Of older ABIs, under names that cuda.h no longer maps to.
#define TILEWRIGHT_VGPU_OLD_FUNCTIONS(apply) \
  apply(cuCtxCreate_v2) apply(cuCtxCreate_v3) apply(cuStreamGetCaptureInfo_v2)

// Names as in cuda.h, which maps some of them to their newest version (_v2, ...).
// clang-format off
#define TILEWRIGHT_VGPU_MORE_FUNCTIONS(apply)                                                     \
  apply(cuCtxDisablePeerAccess) apply(cuCtxEnablePeerAccess) apply(cuCtxGetExecAffinity)          \
  apply(cuCtxResetPersistingL2Cache) apply(cuCtxSetFlags) apply(cuDeviceGetExecAffinitySupport)   \
  apply(cuDeviceGetP2PAttribute) apply(cuGetExportTable) apply(cuIpcCloseMemHandle)               \
  apply(cuIpcGetEventHandle) apply(cuIpcGetMemHandle) apply(cuIpcOpenEventHandle)                 \
  apply(cuIpcOpenMemHandle) apply(cuLibraryGetManaged) apply(cuLibraryGetUnifiedFunction)         \
  apply(cuLibraryLoadFromFile) apply(cuMemGetHandleForAddressRange) apply(cuMemPoolGetAccess)     \
  apply(cuMemPoolSetAccess) apply(cuModuleLoadFatBinary) apply(cuPointerSetAttribute)             \
  apply(cuStreamCopyAttributes) apply(cuStreamGetAttribute) apply(cuStreamGetCtx_v2)              \
  apply(cuStreamSetAttribute) apply(cuStreamBeginCaptureToGraph)                                  \
  apply(cuStreamUpdateCaptureDependencies) apply(cuGraphAddMemAllocNode)                          \
  apply(cuGraphAddMemFreeNode) apply(cuGraphAddEventRecordNode) apply(cuGraphAddEventWaitNode)    \
  apply(cuGraphExecGetFlags) apply(cuGraphNodeGetDependentNodes) apply(cuGraphReleaseUserObject)  \
  apply(cuGraphRetainUserObject) apply(cuUserObjectCreate) apply(cuUserObjectRelease)             \
  apply(cuUserObjectRetain)                                                                       \
  apply(cuCtxCreate) apply(cuCtxDestroy) apply(cuCtxGetApiVersion) apply(cuCtxGetCacheConfig)     \
  apply(cuCtxGetDevice) apply(cuCtxGetFlags) apply(cuCtxGetId) apply(cuCtxGetLimit)               \
  apply(cuCtxGetStreamPriorityRange) apply(cuCtxPopCurrent) apply(cuCtxPushCurrent)               \
  apply(cuCtxSetCacheConfig) apply(cuCtxSetLimit) apply(cuDeviceCanAccessPeer)                    \
  apply(cuDeviceComputeCapability) apply(cuDeviceGetByPCIBusId) apply(cuDeviceGetDefaultMemPool)  \
  apply(cuDeviceGetMemPool) apply(cuDeviceGetPCIBusId) apply(cuDeviceGetUuid)                     \
  apply(cuDevicePrimaryCtxGetState) apply(cuDevicePrimaryCtxSetFlags) apply(cuDeviceSetMemPool)   \
  apply(cuEventRecordWithFlags) apply(cuFuncGetModule) apply(cuFuncGetName)                       \
  apply(cuFuncGetParamInfo) apply(cuFuncIsLoaded) apply(cuFuncLoad) apply(cuFuncSetCacheConfig)   \
  apply(cuGraphAddChildGraphNode) apply(cuGraphAddDependencies) apply(cuGraphAddEmptyNode)        \
  apply(cuGraphAddHostNode) apply(cuGraphAddKernelNode) apply(cuGraphAddMemcpyNode)               \
  apply(cuGraphAddMemsetNode) apply(cuGraphChildGraphNodeGetGraph) apply(cuGraphClone)            \
  apply(cuGraphCreate) apply(cuGraphDestroyNode) apply(cuGraphExecHostNodeSetParams)              \
  apply(cuGraphExecKernelNodeSetParams) apply(cuGraphExecMemcpyNodeSetParams)                     \
  apply(cuGraphExecMemsetNodeSetParams) apply(cuGraphExecUpdate) apply(cuGraphGetEdges)           \
  apply(cuGraphGetNodes) apply(cuGraphGetRootNodes) apply(cuGraphHostNodeSetParams)               \
  apply(cuGraphInstantiateWithParams) apply(cuGraphKernelNodeSetParams)                           \
  apply(cuGraphMemcpyNodeSetParams) apply(cuGraphMemsetNodeSetParams)                             \
  apply(cuGraphNodeFindInClone) apply(cuGraphNodeGetDependencies) apply(cuGraphNodeGetType)       \
  apply(cuGraphRemoveDependencies) apply(cuGraphUpload) apply(cuKernelGetAttribute)               \
  apply(cuKernelGetFunction) apply(cuKernelGetLibrary) apply(cuKernelGetName)                     \
  apply(cuKernelGetParamInfo) apply(cuKernelSetAttribute) apply(cuKernelSetCacheConfig)           \
  apply(cuLaunchCooperativeKernel) apply(cuLaunchHostFunc) apply(cuLaunchKernelEx)                \
  apply(cuLibraryEnumerateKernels) apply(cuLibraryGetGlobal) apply(cuLibraryGetKernel)            \
  apply(cuLibraryGetKernelCount) apply(cuLibraryGetModule) apply(cuLibraryLoadData)               \
  apply(cuLibraryUnload) apply(cuLinkAddData) apply(cuLinkAddFile) apply(cuLinkComplete)          \
  apply(cuLinkCreate) apply(cuLinkDestroy) apply(cuMemAddressFree) apply(cuMemAddressReserve)     \
  apply(cuMemAdvise) apply(cuMemAllocAsync) apply(cuMemAllocFromPoolAsync) apply(cuMemAllocHost)  \
  apply(cuMemAllocManaged) apply(cuMemAllocPitch) apply(cuMemCreate)                              \
  apply(cuMemExportToShareableHandle) apply(cuMemFreeAsync) apply(cuMemFreeHost)                  \
  apply(cuMemGetAccess) apply(cuMemGetAddressRange) apply(cuMemGetAllocationGranularity)          \
  apply(cuMemGetAllocationPropertiesFromHandle) apply(cuMemHostAlloc)                             \
  apply(cuMemHostGetDevicePointer) apply(cuMemHostGetFlags) apply(cuMemHostRegister)              \
  apply(cuMemHostUnregister) apply(cuMemImportFromShareableHandle) apply(cuMemMap)                \
  apply(cuMemPoolCreate) apply(cuMemPoolDestroy) apply(cuMemPoolGetAttribute)                     \
  apply(cuMemPoolSetAttribute) apply(cuMemPoolTrimTo) apply(cuMemPrefetchAsync)                   \
  apply(cuMemRelease) apply(cuMemRetainAllocationHandle) apply(cuMemSetAccess) apply(cuMemUnmap)  \
  apply(cuMemcpy) apply(cuMemcpy2D) apply(cuMemcpy2DAsync) apply(cuMemcpy2DUnaligned)             \
  apply(cuMemcpy3D) apply(cuMemcpy3DAsync) apply(cuMemcpy3DPeer) apply(cuMemcpy3DPeerAsync)       \
  apply(cuMemcpyAsync) apply(cuMemcpyDtoDAsync) apply(cuMemcpyPeer) apply(cuMemcpyPeerAsync)      \
  apply(cuMemsetD16) apply(cuMemsetD16Async) apply(cuMemsetD2D16) apply(cuMemsetD2D16Async)       \
  apply(cuMemsetD2D32) apply(cuMemsetD2D32Async) apply(cuMemsetD2D8) apply(cuMemsetD2D8Async)     \
  apply(cuMemsetD32) apply(cuModuleEnumerateFunctions) apply(cuModuleGetFunctionCount)            \
  apply(cuModuleGetGlobal) apply(cuModuleGetLoadingMode) apply(cuModuleLoad)                      \
  apply(cuModuleLoadDataEx) apply(cuOccupancyAvailableDynamicSMemPerBlock)                        \
  apply(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) apply(cuOccupancyMaxActiveClusters) \
  apply(cuOccupancyMaxPotentialBlockSize) apply(cuOccupancyMaxPotentialBlockSizeWithFlags)        \
  apply(cuOccupancyMaxPotentialClusterSize) apply(cuPointerGetAttribute)                          \
  apply(cuPointerGetAttributes) apply(cuStreamAddCallback) apply(cuStreamAttachMemAsync)          \
  apply(cuStreamCreateWithPriority) apply(cuStreamGetCaptureInfo) apply(cuStreamGetCtx)           \
  apply(cuStreamGetDevice) apply(cuStreamGetFlags) apply(cuStreamGetId)                           \
  apply(cuStreamGetPriority) apply(cuTensorMapEncodeIm2col)                                       \
  apply(cuTensorMapEncodeTiled) apply(cuThreadExchangeStreamCaptureMode)

// Of both lists, those that have a form for streams per thread: the stream is 0, or there is none.
#define TILEWRIGHT_VGPU_STREAM_FUNCTIONS(apply) \
  TILEWRIGHT_VGPU_PTDS_FUNCTIONS(apply) TILEWRIGHT_VGPU_PTSZ_FUNCTIONS(apply)

// By the suffix of that form: _ptds where the stream is not a parameter, else _ptsz.
#define TILEWRIGHT_VGPU_PTDS_FUNCTIONS(apply)                                                     \
  apply(cuMemcpy) apply(cuMemcpy2D) apply(cuMemcpy2DUnaligned) apply(cuMemcpy3D)                  \
  apply(cuMemcpy3DPeer) apply(cuMemcpyDtoD) apply(cuMemcpyDtoH) apply(cuMemcpyHtoD)               \
  apply(cuMemcpyPeer) apply(cuMemsetD16) apply(cuMemsetD2D16) apply(cuMemsetD2D32)                \
  apply(cuMemsetD2D8) apply(cuMemsetD32) apply(cuMemsetD8)
#define TILEWRIGHT_VGPU_PTSZ_FUNCTIONS(apply)                                                     \
  apply(cuEventRecord) apply(cuEventRecordWithFlags) apply(cuGraphInstantiateWithParams)          \
  apply(cuGraphLaunch) apply(cuGraphUpload) apply(cuLaunchCooperativeKernel)                      \
  apply(cuLaunchHostFunc) apply(cuLaunchKernel) apply(cuLaunchKernelEx) apply(cuMemAllocAsync)    \
  apply(cuMemAllocFromPoolAsync) apply(cuMemFreeAsync) apply(cuMemPrefetchAsync)                  \
  apply(cuMemcpy2DAsync) apply(cuMemcpy3DAsync) apply(cuMemcpy3DPeerAsync) apply(cuMemcpyAsync)   \
  apply(cuMemcpyDtoDAsync) apply(cuMemcpyDtoHAsync) apply(cuMemcpyHtoDAsync)                      \
  apply(cuMemcpyPeerAsync) apply(cuMemsetD16Async) apply(cuMemsetD2D16Async)                      \
  apply(cuMemsetD2D32Async) apply(cuMemsetD2D8Async) apply(cuMemsetD32Async)                      \
  apply(cuMemsetD8Async) apply(cuStreamAddCallback) apply(cuStreamAttachMemAsync)                 \
  apply(cuStreamBeginCapture) apply(cuStreamBeginCaptureToGraph)                                  \
  apply(cuStreamUpdateCaptureDependencies) apply(cuStreamCopyAttributes) apply(cuStreamEndCapture)             \
  apply(cuStreamGetAttribute) apply(cuStreamGetCaptureInfo) apply(cuStreamGetCtx)                 \
  apply(cuStreamGetCtx_v2) apply(cuStreamGetDevice) apply(cuStreamGetFlags) apply(cuStreamGetId)  \
  apply(cuStreamGetPriority) apply(cuStreamIsCapturing) apply(cuStreamQuery)                      \
  apply(cuStreamSetAttribute) apply(cuStreamSynchronize) apply(cuStreamWaitEvent)
// clang-format on
