/* The part of the CUDA driver's interface that is wrapped, in words of our own: NVIDIA's cuda.h is not needed.
 * Names, parameters and numbers: CUDA Driver API reference. */
#ifndef MGPU_CUDA_H
#define MGPU_CUDA_H
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *handle; /* of a context, stream, event, graph, node, pool, array or function */

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};
/* CUmemLocationType */
enum { LOCATION_DEVICE = 1, LOCATION_HOST = 2, LOCATION_NUMA = 3, LOCATION_OWN_NUMA = 4, LOCATION_PART = 6 };
enum { ALLOCATION_MANAGED = 2 };                   /* CUmemAllocationType */
enum { POOL_RESERVED = 5 };                        /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
enum { GRAPH_USED = 0, GRAPH_RESERVED = 2 };       /* CU_GRAPH_MEM_ATTR_…_MEM_CURRENT */
enum { NODE_CHILD_GRAPH = 4, NODE_MEM_ALLOC = 10 }; /* CUgraphNodeType */
enum { CAPTURE_MODE_RELAXED = 2 };
enum { ARRAY_WITHOUT_MEMORY = 0x40 | 0x80 }; /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING */
enum { ARRAY_OF_LAYERS = 0x01 | 0x04 };      /* CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP: its depth is their number */
enum { INSTANTIATE_UPLOAD = 2 };             /* CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD */

struct location {
    int type;
    union { int id; struct { unsigned char device, part; } of; };
};
struct allocation_properties { /* CUmemAllocationProp */
    int type, handle_types;
    struct location location;
    void *win32;
    unsigned char flags[8];
};
struct pool_properties { /* CUmemPoolProps: 88 bytes in all versions */
    int type, handle_types;
    struct location location;
    unsigned char rest[72];
};
struct alloc_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    struct pool_properties pool;
    const void *access;
    size_t accesses, bytes;
    CUdeviceptr pointer;
};
struct node { /* CUgraphNodeParams */
    int type, reserved[3];
    union { struct alloc_node alloc; long long size[29]; } of;
    long long reserved_too;
};
struct array_v1 { unsigned width, height; int format; unsigned channels; };
struct array { size_t width, height; int format; unsigned channels; };
struct array3d_v1 { unsigned width, height, depth; int format; unsigned channels, flags; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
struct instantiation { uint64_t flags; handle stream, wrong; int result; }; /* CUDA_GRAPH_INSTANTIATE_PARAMS */
struct launch_config { unsigned grid[3], block[3], shared; handle stream; void *attributes; unsigned count; };
struct cooperative { handle function; unsigned grid[3], block[3], shared; handle stream; void **arguments; };

#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define GRID_PASSED gx, gy, gz, bx, by, bz, shared

/* Some functions come twice: those whose names end in _ptsz take the default stream of the calling thread. */
#define BOTH(X, name, parameters) X(name, parameters) X(name##_ptsz, parameters)

/* What is wrapped: X(name, parameters). */
#define WRAPPED(X)                                                                                               \
    X(cuInit, (unsigned flags))                                                                                  \
    X(cuGetProcAddress, (const char *name, void **to, int version, uint64_t flags))                              \
    X(cuGetProcAddress_v2, (const char *name, void **to, int version, uint64_t flags, int *status))              \
    /* memory and its figures */                                                                                 \
    X(cuMemAlloc, (unsigned *to, unsigned bytes))                                                                \
    X(cuMemAlloc_v2, (CUdeviceptr *to, size_t bytes))                                                            \
    X(cuMemAllocPitch, (unsigned *to, unsigned *pitch, unsigned width, unsigned height, unsigned element))       \
    X(cuMemAllocPitch_v2, (CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element))       \
    X(cuMemAllocManaged, (CUdeviceptr *to, size_t bytes, unsigned flags))                                        \
    X(cuMemFree, (unsigned pointer))                                                                             \
    X(cuMemFree_v2, (CUdeviceptr pointer))                                                                       \
    X(cuMemGetInfo, (unsigned *left, unsigned *total))                                                           \
    X(cuMemGetInfo_v2, (size_t *left, size_t *total))                                                            \
    X(cuDeviceTotalMem, (unsigned *bytes, CUdevice device))                                                      \
    X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                                     \
    X(cuArrayCreate, (handle * to, const struct array_v1 *array))                                                \
    X(cuArrayCreate_v2, (handle * to, const struct array *array))                                                \
    X(cuArray3DCreate, (handle * to, const struct array3d_v1 *array))                                            \
    X(cuArray3DCreate_v2, (handle * to, const struct array3d *array))                                            \
    X(cuArrayDestroy, (handle array))                                                                            \
    X(cuMipmappedArrayCreate, (handle * to, const struct array3d *array, unsigned levels))                       \
    X(cuMipmappedArrayDestroy, (handle array))                                                                   \
    /* contexts take with them what was allocated in them */                                                     \
    X(cuCtxDestroy, (handle context))                                                                            \
    X(cuCtxDestroy_v2, (handle context))                                                                         \
    X(cuDevicePrimaryCtxRetain, (handle * to, CUdevice device))                                                  \
    X(cuDevicePrimaryCtxRelease, (CUdevice device))                                                              \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                           \
    X(cuDevicePrimaryCtxReset, (CUdevice device))                                                                \
    X(cuDevicePrimaryCtxReset_v2, (CUdevice device))                                                             \
    /* pools */                                                                                                  \
    BOTH(X, cuMemAllocAsync, (CUdeviceptr * to, size_t bytes, handle stream))                                    \
    BOTH(X, cuMemAllocFromPoolAsync, (CUdeviceptr * to, size_t bytes, handle pool, handle stream))               \
    BOTH(X, cuMemFreeAsync, (CUdeviceptr pointer, handle stream))                                                \
    X(cuMemPoolCreate, (handle * to, const struct pool_properties *properties))                                  \
    X(cuMemPoolDestroy, (handle pool))                                                                           \
    X(cuMemPoolTrimTo, (handle pool, size_t keep))                                                               \
    /* physical memory and addresses apart */                                                                    \
    X(cuMemCreate, (uint64_t *to, size_t bytes, const struct allocation_properties *properties, uint64_t flags)) \
    X(cuMemRelease, (uint64_t memory))                                                                           \
    X(cuMemRetainAllocationHandle, (uint64_t *to, void *address))                                                \
    X(cuMemImportFromShareableHandle, (uint64_t *to, void *shared, int type))                                    \
    X(cuMemMap, (CUdeviceptr at, size_t bytes, size_t offset, uint64_t memory, uint64_t flags))                  \
    X(cuMemUnmap, (CUdeviceptr at, size_t bytes))                                                                \
    BOTH(X, cuMemMapArrayAsync, (void *list, unsigned count, handle stream))                                     \
    /* graphs with memory of their own */                                                                        \
    X(cuGraphAddMemAllocNode, (handle * to, handle graph, const handle *after, size_t count, struct alloc_node *node)) \
    X(cuGraphAddNode, (handle * to, handle graph, const handle *after, size_t count, struct node *node))         \
    X(cuGraphAddNode_v2,                                                                                         \
      (handle * to, handle graph, const handle *after, const void *edges, size_t count, struct node *node))      \
    X(cuGraphAddNode_v3,                                                                                         \
      (handle * to, handle graph, const handle *after, const void *edges, size_t count, struct node *node))      \
    X(cuGraphInstantiate, (handle * to, handle graph, handle *wrong, char *log, size_t size))                    \
    X(cuGraphInstantiate_v2, (handle * to, handle graph, handle *wrong, char *log, size_t size))                 \
    X(cuGraphInstantiateWithFlags, (handle * to, handle graph, uint64_t flags))                                  \
    BOTH(X, cuGraphInstantiateWithParams, (handle * to, handle graph, struct instantiation * how))               \
    X(cuGraphExecDestroy, (handle graph))                                                                        \
    BOTH(X, cuGraphUpload, (handle graph, handle stream))                                                        \
    X(cuDeviceGraphMemTrim, (CUdevice device))                                                                   \
    /* work */                                                                                                   \
    BOTH(X, cuGraphLaunch, (handle graph, handle stream))                                                        \
    X(cuLaunch, (handle function))                                                                               \
    X(cuLaunchGrid, (handle function, int width, int height))                                                    \
    X(cuLaunchGridAsync, (handle function, int width, int height, handle stream))                                \
    BOTH(X, cuLaunchKernel, (handle function, GRID, handle stream, void **arguments, void **extra))              \
    BOTH(X, cuLaunchKernelEx, (const struct launch_config *config, handle function, void **arguments, void **extra)) \
    BOTH(X, cuLaunchCooperativeKernel, (handle function, GRID, handle stream, void **arguments))                 \
    X(cuLaunchCooperativeKernelMultiDevice, (struct cooperative * list, unsigned count, unsigned flags))

/* What is only asked of the driver. */
#define ASKED(X)                                                                                 \
    X(cuCtxGetDevice, (CUdevice * to))                                                           \
    X(cuCtxGetCurrent, (handle * to))                                                            \
    X(cuDeviceGetUuid, (unsigned char *to, CUdevice device))                                     \
    X(cuDeviceGetUuid_v2, (unsigned char *to, CUdevice device))                                  \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))               \
    X(cuDeviceGetMemPool, (handle * to, CUdevice device))                                        \
    X(cuDeviceGetDefaultMemPool, (handle * to, CUdevice device))                                 \
    X(cuMemPoolGetAttribute, (handle pool, int attribute, void *value))                          \
    X(cuMemGetAllocationPropertiesFromHandle, (struct allocation_properties * to, uint64_t memory)) \
    X(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void *value))               \
    X(cuGraphGetNodes, (handle graph, handle *to, size_t *count))                                \
    X(cuGraphNodeGetType, (handle node, int *type))                                              \
    X(cuGraphMemAllocNodeGetParams, (handle node, struct alloc_node *to))                        \
    X(cuGraphChildGraphNodeGetGraph, (handle node, handle *to))                                  \
    X(cuStreamIsCapturing, (handle stream, int *status))                                         \
    X(cuStreamIsCapturing_ptsz, (handle stream, int *status))                                    \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                            \
    X(cuEventCreate, (handle * to, unsigned flags))                                              \
    X(cuEventRecord, (handle event, handle stream))                                              \
    X(cuEventRecord_ptsz, (handle event, handle stream))                                         \
    X(cuEventQuery, (handle event))                                                              \
    X(cuEventElapsedTime, (float *ms, handle begin, handle end))

/* The driver's functions by their names; null: this driver has none of that name. */
#define FIELD(name, parameters) CUresult(*name) parameters;
struct driver { WRAPPED(FIELD) ASKED(FIELD) };
#undef FIELD
extern struct driver driver;

#define DECLARE(name, parameters) EXPORT CUresult name parameters;
WRAPPED(DECLARE)
#undef DECLARE
#endif
