/* Allocations of pointers and arrays, from the card directly or from a pool. */
#include "accounts.h"
#include "graphs.h"
#include "pools.h"
#include "process.h"
#include "room.h"
#include "saturating.h"
#include "table.h"
#include "windows.h"

static struct table pointers = TABLE, arrays = TABLE;

enum { PITCH = 512 }; /* the least that rows are aligned to */

/* Count `amount` bytes, call the driver, and note what came of it in `table` under `at`. */
#define ALLOCATE(table, at, amount, name, ...)                                                                         \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    if (inside) return driver.name(__VA_ARGS__);                                                                       \
    int card = current_card();                                                                                         \
    uint64_t size = (amount);                                                                                          \
    if (room_take(card, size)) return CUDA_ERROR_OUT_OF_MEMORY;                                                        \
    CALL(result, name, __VA_ARGS__);                                                                                   \
    if (result)                                                                                                        \
        account_give(card, size);                                                                                      \
    else                                                                                                               \
        table_put(&table,                                                                                              \
                  (struct entry){.key = (uint64_t)(at), .bytes = size, .card = card, .of = current_context()});        \
    return result

static void give(const struct entry *entry) {
    if (entry->count)
        pool_give(entry->of, entry->bytes);
    else
        account_give(entry->card, entry->bytes);
}

/* The entry goes first: as soon as the driver has freed it, another thread may be given the same address. */
#define FREE(table, at, name, ...)                                                                                     \
    CUresult result;                                                                                                   \
    struct entry entry;                                                                                                \
    NEEDS(name);                                                                                                       \
    if (inside) return driver.name(__VA_ARGS__);                                                                       \
    int known = table_take(&table, (uint64_t)(at), &entry);                                                            \
    CALL(result, name, __VA_ARGS__);                                                                                   \
    if (known && result) table_put(&table, entry);                                                                     \
    if (known && !result) give(&entry);                                                                                \
    return result

static uint64_t rows(uint64_t width, uint64_t height) {
    return times(plus(width, PITCH - 1) / PITCH * PITCH, height);
}

CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) { ALLOCATE(pointers, *to, bytes, cuMemAlloc_v2, to, bytes); }
CUresult cuMemAlloc(unsigned *to, unsigned bytes) { ALLOCATE(pointers, *to, bytes, cuMemAlloc, to, bytes); }
CUresult cuMemAllocManaged(CUdeviceptr *to, size_t bytes, unsigned flags) {
    ALLOCATE(pointers, *to, bytes, cuMemAllocManaged, to, bytes, flags);
}
CUresult cuMemAllocPitch_v2(CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element) {
    ALLOCATE(pointers, *to, rows(width, height), cuMemAllocPitch_v2, to, pitch, width, height, element);
}
CUresult cuMemAllocPitch(unsigned *to, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    ALLOCATE(pointers, *to, rows(width, height), cuMemAllocPitch, to, pitch, width, height, element);
}
CUresult cuMemFree_v2(CUdeviceptr pointer) { FREE(pointers, pointer, cuMemFree_v2, pointer); }
CUresult cuMemFree(unsigned pointer) { FREE(pointers, pointer, cuMemFree, pointer); }

/* ---- arrays */

/* Bytes of one channel of a texel, by CUarray_format. Those that are not named have two at most, packed ones less. */
static uint64_t channel(int format) {
    switch (format) {
    case 0x01:
    case 0x08:
    case 0xb0: return 1; /* 8 bits */
    case 0x03:
    case 0x0a:
    case 0x20: return 4; /* 32 bits */
    default: return 2;
    }
}

static uint64_t or_one(uint64_t value) { return value ? value : 1; }

static uint64_t texels(int format, uint64_t channels, uint64_t width, uint64_t height, uint64_t depth) {
    return times(times(times(channel(format) * channels, width), or_one(height)), or_one(depth));
}

static uint64_t of_3d(const struct array3d *array) {
    if (array->flags & ARRAY_WITHOUT_MEMORY) return 0; /* what is mapped into it was counted when it was made */
    return texels(array->format, array->channels, array->width, array->height, array->depth);
}

static uint64_t half(uint64_t size) { return size > 1 ? size / 2 : size; }

/* Each level is half as large in all directions, down to one texel. */
static uint64_t of_levels(const struct array3d *array, unsigned levels) {
    struct array3d level = *array;
    int has_layers = (array->flags & ARRAY_OF_LAYERS) != 0;
    uint64_t bytes = 0, sizes = level.width | level.height | (has_layers ? 0 : level.depth);
    for (unsigned number = 0; sizes >> number && (!number || number < levels); number++) {
        bytes = plus(bytes, of_3d(&level));
        level.width = half(level.width);
        level.height = half(level.height);
        if (!has_layers) level.depth = half(level.depth);
    }
    return bytes;
}

CUresult cuArrayCreate_v2(handle *to, const struct array *array) {
    ALLOCATE(arrays, (uintptr_t)*to, texels(array->format, array->channels, array->width, array->height, 0),
             cuArrayCreate_v2, to, array);
}
CUresult cuArrayCreate(handle *to, const struct array_v1 *array) {
    ALLOCATE(arrays, (uintptr_t)*to, texels(array->format, array->channels, array->width, array->height, 0),
             cuArrayCreate, to, array);
}
CUresult cuArray3DCreate_v2(handle *to, const struct array3d *array) {
    ALLOCATE(arrays, (uintptr_t)*to, of_3d(array), cuArray3DCreate_v2, to, array);
}
CUresult cuArray3DCreate(handle *to, const struct array3d_v1 *array) {
    ALLOCATE(arrays, (uintptr_t)*to, texels(array->format, array->channels, array->width, array->height, array->depth),
             cuArray3DCreate, to, array);
}
CUresult cuMipmappedArrayCreate(handle *to, const struct array3d *array, unsigned levels) {
    ALLOCATE(arrays, (uintptr_t)*to, of_levels(array, levels), cuMipmappedArrayCreate, to, array, levels);
}
CUresult cuArrayDestroy(handle array) { FREE(arrays, (uintptr_t)array, cuArrayDestroy, array); }
CUresult cuMipmappedArrayDestroy(handle array) { FREE(arrays, (uintptr_t)array, cuMipmappedArrayDestroy, array); }

/* ---- in the order of a stream */

static handle current_pool(void) {
    CUdevice device;
    return driver.cuCtxGetDevice && !driver.cuCtxGetDevice(&device) ? pool_of(device) : NULL;
}

/* While its stream is captured an allocation becomes part of a graph. */
#define ALLOCATE_ASYNC(pool, own, name, ...)                                                                           \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    if (inside) return driver.name(__VA_ARGS__);                                                                       \
    handle from = (pool);                                                                                              \
    int captured = is_captured(stream, own);                                                                           \
    if (captured ? graph_allocates(current_card(), bytes) : pool_take(from, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;   \
    CALL(result, name, __VA_ARGS__);                                                                                   \
    if (captured) return result;                                                                                       \
    if (result)                                                                                                        \
        pool_give(from, bytes);                                                                                        \
    else                                                                                                               \
        table_put(&pointers, (struct entry){.key = *to, .bytes = bytes, .of = from, .count = 1});                      \
    pool_look(from);                                                                                                   \
    return result

CUresult cuMemAllocAsync(CUdeviceptr *to, size_t bytes, handle stream) {
    ALLOCATE_ASYNC(current_pool(), 0, cuMemAllocAsync, to, bytes, stream);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *to, size_t bytes, handle stream) {
    ALLOCATE_ASYNC(current_pool(), 1, cuMemAllocAsync_ptsz, to, bytes, stream);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *to, size_t bytes, handle pool, handle stream) {
    ALLOCATE_ASYNC(pool, 0, cuMemAllocFromPoolAsync, to, bytes, pool, stream);
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *to, size_t bytes, handle pool, handle stream) {
    ALLOCATE_ASYNC(pool, 1, cuMemAllocFromPoolAsync_ptsz, to, bytes, pool, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr pointer, handle stream) {
    FREE(pointers, pointer, cuMemFreeAsync, pointer, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, handle stream) {
    FREE(pointers, pointer, cuMemFreeAsync_ptsz, pointer, stream);
}

CUresult cuMemPoolCreate(handle *to, const struct pool_properties *properties) {
    CUresult result;
    NEEDS(cuMemPoolCreate);
    CALL(result, cuMemPoolCreate, to, properties);
    if (!result) pool_made(*to, properties);
    return result;
}

CUresult cuMemPoolDestroy(handle pool) {
    CUresult result;
    NEEDS(cuMemPoolDestroy);
    CALL(result, cuMemPoolDestroy, pool);
    if (!result) pool_destroyed(pool);
    return result;
}

CUresult cuMemPoolTrimTo(handle pool, size_t keep) {
    CUresult result;
    NEEDS(cuMemPoolTrimTo);
    CALL(result, cuMemPoolTrimTo, pool, keep);
    pool_look(pool);
    return result;
}

/* ---- contexts */

static int is_in(const struct entry *entry, const void *context) { return !entry->count && entry->of == context; }

static void forget_context(handle context) {
    struct entry entry;
    if (!context) return;
    while (table_take_any(&pointers, is_in, context, &entry)) give(&entry);
    while (table_take_any(&arrays, is_in, context, &entry)) give(&entry);
    windows_forget(context);
}

#define DESTROY(name)                                                                                                  \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    CALL(result, name, context);                                                                                       \
    if (!result && !inside) forget_context(context);                                                                   \
    return result

CUresult cuCtxDestroy(handle context) { DESTROY(cuCtxDestroy); }
CUresult cuCtxDestroy_v2(handle context) { DESTROY(cuCtxDestroy_v2); }

enum { MOST_DEVICES = 64 };
static handle primary[MOST_DEVICES];

CUresult cuDevicePrimaryCtxRetain(handle *to, CUdevice device) {
    CUresult result;
    NEEDS(cuDevicePrimaryCtxRetain);
    CALL(result, cuDevicePrimaryCtxRetain, to, device);
    if (!result && device >= 0 && device < MOST_DEVICES) primary[device] = *to;
    return result;
}

/* The primary context is gone once nobody retains it. */
static void look_at_primary(CUdevice device) {
    unsigned flags;
    int active = 1;
    if (device < 0 || device >= MOST_DEVICES || !driver.cuDevicePrimaryCtxGetState) return;
    if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) || active) return;
    forget_context(primary[device]);
    primary[device] = NULL;
}

#define LET_GO(name)                                                                                                   \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    CALL(result, name, device);                                                                                        \
    if (!result && !inside) look_at_primary(device);                                                                   \
    return result

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { LET_GO(cuDevicePrimaryCtxRelease); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { LET_GO(cuDevicePrimaryCtxRelease_v2); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { LET_GO(cuDevicePrimaryCtxReset); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { LET_GO(cuDevicePrimaryCtxReset_v2); }
