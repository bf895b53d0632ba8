/* Tilewright's C interface: the one stable ABI. C++ (client/client.h) and Python stand on it.
 *
 *   tw_client* client;
 *   tw_client_open(NULL, &client);
 *   const tw_operator* op;
 *   tw_operator_load(client, yaml, "swiglu.yaml", "N=14336,K=4096", &op);
 *   int64_t sizes[] = {16};                            // of the dynamic dimensions, in order
 *   tw_plan* plan;
 *   tw_plan_get(client, op, sizes, 1, &plan);          // the second time: a lookup without a lock
 *   tw_launch* launch;
 *   tw_prepare(plan, tensors, 4, &launch);             // inputs, then outputs
 *   tw_launch_run(launch, workspace, stream);          // neither allocates nor synchronises
 *
 * Functions return 0 or one of the codes below; tw_last_error() says more, for the calling thread.
 * Everything may be called from any thread. Strings are UTF-8 and end in NUL; those that are
 * returned live as long as the object that they are asked of. Structs begin with their size, so that
 * later versions can add fields at their end.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_API __attribute__((visibility("default")))
#define TW_VERSION 2 /* of this interface: raised when something is added */

/* Never renumbered. */
enum {
  TW_OK = 0,
  TW_INVALID_ARGUMENT = 1, /* an operator, a parameter, a tensor or a pointer is wrong */
  TW_NOT_FOUND = 2,        /* no daemon, no device, no file, or nothing in the bundle */
  TW_UNSUPPORTED = 3,      /* well-formed, but nothing here can do it */
  TW_IO = 4,
  TW_CORRUPT = 5,
  TW_COMPILE = 6,
  TW_FAULT = 7, /* a kernel faulted */
  TW_HANG = 8,  /* an answer did not come in time */
  TW_WRONG_RESULT = 9,
  TW_OUT_OF_MEMORY = 10, /* of the host, or more than a budget allows */
  TW_DEVICE_LOST = 11,
  TW_CANCELLED = 12,
  TW_BUSY = 13,
  TW_PERMISSION = 14,
  TW_CRASH = 15,
  TW_INTERNAL = 16,
  TW_THROTTLED = 17,    /* the device's clocks were held down for as long as was waited */
  TW_DEVICE_MEMORY = 18 /* the driver had no memory left */
};

/* Of the last call on this thread that failed: "M axis 0 is 3, expected ..."; "" if none has. */
TW_API const char* tw_last_error(void);
/* A compiler log or a fault report that goes with it; mostly "". */
TW_API const char* tw_last_error_detail(void);
TW_API int tw_version(void);

/* ---- Client: the connection to the daemon, the device, and all plans of this process. ---- */

typedef struct tw_client tw_client;

typedef struct tw_options {
  size_t size;         /* sizeof(tw_options) */
  const char* socket;  /* of the daemon; NULL: the user's */
  const char* bundle;  /* a file of `tilewright cache export`: read instead of asking a daemon */
  const char* device;  /* NULL or "auto", "cuda", "cuda:N", "virtual", "virtual:ID" */
  const char* daemon;  /* program to start where none listens; NULL: tilewrightd of this install */
  const char* cache;   /* cache folder of a daemon that is started; NULL: the user's */
  int no_start;        /* nonzero: start no daemon */
  uint32_t timeout_ms; /* of one answer; 0: 60 000. A first plan may have to be compiled */
  uint32_t daemon_uid; /* a user whose daemon is believed, beside one's own and root's; 0: none */
  /* How this process launches plans, and what they are to be best at. Since version 2. */
  const char*
      objective; /* "latency", "throughput", "p99", "energy"; NULL: as the daemon is configured */
  int graph;     /* 1: replays of a captured graph; -1: launches on a stream; 0: as configured */
  int warm_l2;   /* 1: what the launch before left in L2 counts; -1: L2 is cold; 0: as configured */
} tw_options;

/* `options` may be NULL. Starts a daemon where none listens. Errors: TW_NOT_FOUND; TW_PERMISSION: it is
 * somebody else's, or somebody else may have put it there. */
TW_API int tw_client_open(const tw_options* options, tw_client** client);
/* Ends all that was got from it, but for launches: they go on until they are freed. */
TW_API void tw_client_close(tw_client* client);
/* "NVIDIA H200". */
TW_API const char* tw_client_device(const tw_client* client);
/* Nonzero: times are modelled, and kernels are executed on the CPU. */
TW_API int tw_client_is_virtual(const tw_client* client);

/* ---- Operators. ---- */

typedef struct tw_operator tw_operator;

/* `yaml`: text of an operator file; `file`: its name, for messages; `parameters`: "N=14336,T=bf16"
 * or NULL. Equal operators are one. It lives as long as the client. */
TW_API int tw_operator_load(tw_client* client, const char* yaml, const char* file,
                            const char* parameters, const tw_operator** op);
TW_API const char* tw_operator_name(const tw_operator* op);
/* Dynamic dimensions, in the order in which sizes are passed. NULL beyond the last. */
TW_API size_t tw_operator_dimension_count(const tw_operator* op);
TW_API const char* tw_operator_dimension(const tw_operator* op, size_t index);
/* Inputs, then outputs, in the order in which tensors are passed. */
TW_API size_t tw_operator_tensor_count(const tw_operator* op);
TW_API const char* tw_operator_tensor(const tw_operator* op, size_t index);

/* ---- Plans. ---- */

typedef struct tw_plan tw_plan;

/* The plan of the operator at these sizes. The first call asks the daemon; every later one with the
 * same operator and sizes is a lookup in this process, without a lock. It lives as long as the
 * client. */
TW_API int tw_plan_get(tw_client* client, const tw_operator* op, const int64_t* sizes, size_t count,
                       tw_plan** plan);

/* TW_SOURCE_OTHER: tuned, and being tuned once more, since it was under other conditions than those
 * that were asked for: tw_plan_info says which. */
enum { TW_SOURCE_HIT = 1, TW_SOURCE_FALLBACK = 2, TW_SOURCE_OTHER = 3 };

typedef struct tw_plan_info {
  size_t size;              /* sizeof(tw_plan_info), set by the caller */
  uint64_t version;         /* another plan, another number */
  int source;               /* TW_SOURCE_HIT: tuned; TW_SOURCE_FALLBACK: safe, being tuned */
  int verified;             /* its results were compared with the operator's on this device */
  int modelled;             /* times are the virtual GPU's model */
  double time_us;           /* 0: not measured at these sizes */
  double baseline_us;       /* of the unfused defaults; 0: not measured at these sizes */
  uint64_t workspace_bytes; /* at these sizes */
  size_t launches;          /* kernels */
  /* What it was tuned under, and its times were taken; objective "": it was not tuned. Since version 2. */
  const char* objective; /* "latency", ... */
  int graph;             /* nonzero: replays of a captured graph; else launches on a stream */
  int warm_l2;           /* nonzero: warm; else cold */
} tw_plan_info;

TW_API int tw_plan_get_info(const tw_plan* plan, tw_plan_info* info);
/* Family and config of each group: "simt_gemm block_m=64 ..."; NULL beyond the last. Of the version
 * in use when it is called. */
TW_API const char* tw_plan_group(const tw_plan* plan, size_t index);

/* *better: nonzero if the daemon has another plan than the one in use. Never waits. */
TW_API int tw_plan_poll(tw_plan* plan, int* better);
/* Takes the daemon's plan into use, if it has another one: tw_prepare uses it from then on. Launches
 * that were prepared before, and graphs that they were captured in, stay as they are. Where its
 * workspace is above `workspace_limit` bytes: TW_UNSUPPORTED, and nothing changes. */
TW_API int tw_plan_adopt(tw_plan* plan, uint64_t workspace_limit);
/* Versions that are no longer in use are kept loaded, since a captured graph may launch them; this
 * says that none does. Prepared launches keep their own. */
TW_API void tw_plan_forget_old(tw_plan* plan);

/* ---- Launches. ---- */

typedef struct tw_launch tw_launch;

typedef struct tw_tensor {
  uint64_t address; /* of device memory */
  size_t rank;
  const int64_t* shape;
  const int64_t* strides; /* in elements; NULL: dense, row-major */
} tw_tensor;

/* Which tensors may share memory, at a launch: inputs with each other in any way. An output needs
 * memory of its own, elements that lie on no others; columns of one matrix, side by side, are memory
 * of their own. It may lie in an input's memory exactly, with the same address, dtype, shape and strides,
 * if the plan reads that input no more once the output is written: an input of matmul, one that is
 * broadcast, and one that a later kernel reads are refused. Everything else is refused, too, by
 * TW_INVALID_ARGUMENT and before anything is launched. Whether an input is read later depends on the
 * plan: what is to work with every plan has memory of its own. */

/* For these addresses, shapes and strides, as often as they stay the same. Tensors that are not
 * aligned as the plan likes are served by its narrower twin. Errors name the tensor. */
TW_API int tw_prepare(const tw_plan* plan, const tw_tensor* tensors, size_t count,
                      tw_launch** launch);
TW_API void tw_launch_free(tw_launch* launch);
TW_API uint64_t tw_launch_workspace_bytes(const tw_launch* launch);
/* `workspace`: tw_launch_workspace_bytes() bytes of device memory, aligned to 256; may be 0 where
 * none are needed. `stream`: a CUstream (cudaStream_t) of this device's primary context; NULL is the
 * default stream. Can be captured into a graph. */
TW_API int tw_launch_run(const tw_launch* launch, uint64_t workspace, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* TILEWRIGHT_H */
