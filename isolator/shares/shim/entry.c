/* What programs call first, how they find the rest, and what they are told of a card's memory. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "accounts.h"
#include "process.h"

enum { MIB = 1 << 20, ANY_VERSION = 12000 };

static CUresult refuse(const char *why) {
    static int said;
    char line[4500];
    int length =
        snprintf(line, sizeof line, "mesos_gpu: no GPU is given, for this task's share cannot be kept: %s\n", why);
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED) && write(2, line, (size_t)length) < 0) {}
    return CUDA_ERROR_NOT_PERMITTED;
}

/* Whether what a program is told to call for an allocation is ours. */
static int answers_are_ours(void) {
    void *function = NULL;
    int status;
    if (driver.cuGetProcAddress_v2)
        cuGetProcAddress_v2("cuMemAlloc", &function, ANY_VERSION, 0, &status);
    else if (driver.cuGetProcAddress)
        cuGetProcAddress("cuMemAlloc", &function, ANY_VERSION, 0);
    else
        return 1; /* a driver before 11.3: there is only the loader's way */
    return function == (void *)cuMemAlloc_v2;
}

/* Whether one MiB over the share of every card is refused. */
static int shares_are_kept(void) {
    struct card_limits limits;
    for (int card = 0; card < MOST_CARDS; card++)
        if (!limits_of(card, &limits) && account_fits(card, limits.memory + MIB)) return 0;
    return 1;
}

static const char *test_oneself(void) {
    if (!driver.cuMemAlloc_v2 || !driver.cuLaunchKernel || !driver.cuCtxGetDevice)
        return "the driver lacks what every driver has";
    if (!driver.cuDeviceGetUuid_v2 && !driver.cuDeviceGetUuid) return "the driver does not tell cards apart";
    if (!answers_are_ours()) return "its self-test found a way past it: cuGetProcAddress";
    return shares_are_kept() ? NULL : "its self-test was granted one MiB too much";
}

CUresult cuInit(unsigned flags) {
    static int tested;
    CUresult result;
    if (!started()) return refuse(start_problem());
    const char *problem = __atomic_load_n(&tested, __ATOMIC_ACQUIRE) ? NULL : test_oneself();
    if (problem) return refuse(problem);
    __atomic_store_n(&tested, 1, __ATOMIC_RELEASE);
    CALL(result, cuInit, flags);
    return result;
}

CUresult cuGetProcAddress(const char *name, void **to, int version, uint64_t flags) {
    CUresult result;
    NEEDS(cuGetProcAddress);
    CALL(result, cuGetProcAddress, name, to, version, flags);
    if (!result && to) *to = in_place_of(*to);
    return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status) {
    CUresult result;
    NEEDS(cuGetProcAddress_v2);
    CALL(result, cuGetProcAddress_v2, name, to, version, flags, status);
    if (!result && to) *to = in_place_of(*to);
    return result;
}

static uint64_t smaller(uint64_t one, uint64_t other) { return one < other ? one : other; }

/* A card that is none of the task's has nothing. */
static void as_shared(uint64_t *left, uint64_t *total) {
    uint64_t used, memory;
    if (account_state(current_card(), &used, &memory)) used = memory = 0;
    *total = smaller(*total, memory);
    *left = smaller(*left, used < memory ? memory - used : 0);
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    CUresult result;
    NEEDS(cuMemGetInfo_v2);
    CALL(result, cuMemGetInfo_v2, left, total);
    if (!result) as_shared(left, total);
    return result;
}

CUresult cuMemGetInfo(unsigned *left, unsigned *total) {
    CUresult result;
    NEEDS(cuMemGetInfo);
    CALL(result, cuMemGetInfo, left, total);
    if (result) return result;
    uint64_t wide_left = *left, wide_total = *total;
    as_shared(&wide_left, &wide_total);
    *left = (unsigned)wide_left;
    *total = (unsigned)wide_total;
    return result;
}

static uint64_t share_of(CUdevice device) {
    struct card_limits limits;
    return started() && !limits_of(card_of(device), &limits) ? limits.memory : 0;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result;
    NEEDS(cuDeviceTotalMem_v2);
    CALL(result, cuDeviceTotalMem_v2, bytes, device);
    if (!result) *bytes = smaller(*bytes, share_of(device));
    return result;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    CUresult result;
    NEEDS(cuDeviceTotalMem);
    CALL(result, cuDeviceTotalMem, bytes, device);
    if (!result) *bytes = (unsigned)smaller(*bytes, share_of(device));
    return result;
}
