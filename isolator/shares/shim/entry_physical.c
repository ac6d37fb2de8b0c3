/* Physical memory, and the addresses that it is mapped at. */
#include "accounts.h"
#include "physical.h"
#include "process.h"
#include "room.h"
#include "saturating.h"

/* Call the driver, and note what came of it. */
#define IN_ORDER(result, note, name, ...)                                                                              \
    do {                                                                                                               \
        physical_begin();                                                                                              \
        CALL(result, name, __VA_ARGS__);                                                                               \
        if (!(result)) note;                                                                                           \
        physical_end();                                                                                                \
    } while (0)

CUresult cuMemCreate(uint64_t *to, size_t bytes, const struct allocation_properties *properties, uint64_t flags) {
    CUresult result;
    NEEDS(cuMemCreate);
    int card = properties ? card_at(&properties->location) : ON_HOST; /* the one that is named, whatever the context */
    if (inside || card == ON_HOST) return driver.cuMemCreate(to, bytes, properties, flags);
    if (room_take(card, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    IN_ORDER(result, physical_made(*to, card, bytes), cuMemCreate, to, bytes, properties, flags);
    if (result) account_give(card, bytes);
    return result;
}

CUresult cuMemRelease(uint64_t memory) {
    CUresult result;
    NEEDS(cuMemRelease);
    if (inside) return driver.cuMemRelease(memory);
    IN_ORDER(result, physical_released(memory), cuMemRelease, memory);
    return result;
}

CUresult cuMemRetainAllocationHandle(uint64_t *to, void *address) {
    CUresult result;
    NEEDS(cuMemRetainAllocationHandle);
    if (inside) return driver.cuMemRetainAllocationHandle(to, address);
    IN_ORDER(result, physical_retained(*to, (uintptr_t)address), cuMemRetainAllocationHandle, to, address);
    return result;
}

CUresult cuMemImportFromShareableHandle(uint64_t *to, void *shared, int type) {
    CUresult result;
    NEEDS(cuMemImportFromShareableHandle);
    if (inside) return driver.cuMemImportFromShareableHandle(to, shared, type);
    IN_ORDER(result, physical_imported(*to), cuMemImportFromShareableHandle, to, shared, type);
    return result;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, uint64_t memory, uint64_t flags) {
    CUresult result;
    NEEDS(cuMemMap);
    if (inside) return driver.cuMemMap(at, bytes, offset, memory, flags);
    if (physical_map(memory, plus(offset, bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    CALL(result, cuMemMap, at, bytes, offset, memory, flags);
    if (!result) physical_mapped(memory, at, bytes);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    CUresult result;
    NEEDS(cuMemUnmap);
    CALL(result, cuMemUnmap, at, bytes);
    if (!result && !inside) physical_unmapped(at, bytes);
    return result;
}

/* Memory that sparse textures hold would not be counted when its handle is released: there are none in a share. */
CUresult cuMemMapArrayAsync(void *list, unsigned count, handle stream) {
    (void)list, (void)count, (void)stream;
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemMapArrayAsync_ptsz(void *list, unsigned count, handle stream) {
    return cuMemMapArrayAsync(list, count, stream);
}
