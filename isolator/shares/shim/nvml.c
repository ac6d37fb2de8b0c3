/* Stands for libnvidia-ml.so.1, so that nvidia-smi, and what sizes itself by NVML, see the share and not the card. It
 * enforces nothing; all but two functions are the driver's. Names and layouts: NVML API reference. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <string.h>

#include "share.h"

#define EXPORT __attribute__((visibility("default")))
enum { NVML_SUCCESS = 0, NVML_NOT_SUPPORTED = 3, NVML_FUNCTION_NOT_FOUND = 13, UUID_SIZE = 96 };
enum { NEW, STARTING, CLOSED, OPEN };

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static struct {
    int (*uuid)(void *, char *, unsigned);
    int (*memory)(void *, struct memory *);
    int (*memory_v2)(void *, struct memory_v2 *);
} nvml;
static int state = NEW;

static int start(void) {
    char why[4400];
    const struct object *real = object_named("/libmgpu-real-ml.so");
    if (!real) return CLOSED;
    nvml.uuid = (int (*)(void *, char *, unsigned))symbol_of(real, "nvmlDeviceGetUUID");
    nvml.memory = (int (*)(void *, struct memory *))symbol_of(real, "nvmlDeviceGetMemoryInfo");
    nvml.memory_v2 = (int (*)(void *, struct memory_v2 *))symbol_of(real, "nvmlDeviceGetMemoryInfo_v2");
    return share_open(real, O_RDONLY, why, sizeof why) ? CLOSED : OPEN;
}

static int started(void) {
    int now = NEW;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) >= CLOSED) return state == OPEN;
    if (__atomic_compare_exchange_n(&state, &now, STARTING, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        __atomic_store_n(&state, start(), __ATOMIC_RELEASE);
    else
        while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTING) sched_yield();
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == OPEN;
}

static int digit(char letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    letter |= 'a' - 'A';
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx". 0: right. */
static int bytes_of(const char *text, unsigned char uuid[16]) {
    int digits = 0;
    const char *dash = strchr(text, '-');
    for (const char *at = dash ? dash + 1 : ""; *at; at++) {
        int value = digit(*at);
        if (*at == '-') continue;
        if (value < 0 || digits == 32) return -1;
        uuid[digits / 2] = (unsigned char)(digits & 1 ? uuid[digits / 2] << 4 | value : value);
        digits++;
    }
    return digits == 32 ? 0 : -1;
}

/* The share of a device, and what the task uses of it. 0: it has one. */
static int share_of(void *device, struct memory *share) {
    char text[UUID_SIZE];
    unsigned char uuid[16];
    struct card_limits limits;
    if (!started() || !nvml.uuid || nvml.uuid(device, text, sizeof text) || bytes_of(text, uuid)) return -1;
    int card = card_with(uuid);
    if (limits_of(card, &limits)) return -1;
    uint64_t used = used_by_living(card, &limits);
    share->total = limits.memory;
    share->used = used < limits.memory ? used : limits.memory;
    share->free = share->total - share->used;
    return 0;
}

/* A limit above the card is not shown as the card's size. */
static void no_larger(struct memory *share, unsigned long long total) {
    if (!total || share->total <= total) return;
    share->total = total;
    if (share->used > total) share->used = total;
    share->free = total - share->used;
}

/* A card that shares the host's memory has no figures of its own, and yet a share. */
static int is_figure(int result) { return result == NVML_SUCCESS || result == NVML_NOT_SUPPORTED; }

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    struct memory share;
    started();
    int result = nvml.memory ? nvml.memory(device, memory) : NVML_FUNCTION_NOT_FOUND;
    if (!is_figure(result) || share_of(device, &share)) return result;
    no_larger(&share, result ? 0 : memory->total);
    *memory = share;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    struct memory share;
    started();
    int result = nvml.memory_v2 ? nvml.memory_v2(device, memory) : NVML_FUNCTION_NOT_FOUND;
    if (!is_figure(result) || share_of(device, &share)) return result;
    no_larger(&share, result ? 0 : memory->total);
    memory->total = share.total;
    memory->reserved = 0;
    memory->free = share.free;
    memory->used = share.used;
    return NVML_SUCCESS;
}
