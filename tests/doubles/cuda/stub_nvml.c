/* A test double of libnvidia-ml.so.1, of our own: the cards of stub_cuda.c. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, CARDS = 4 };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static int card(void *device, uint64_t head[6]) { /* total, used, busy, launches, and 16 bytes of UUID */
    char path[4096];
    snprintf(path, sizeof path, "%s/card%d", getenv("STUB_CARDS"), (int)(uintptr_t)device - 1);
    FILE *file = fopen(path, "rb");
    int right = file && fread(head, sizeof(uint64_t), 6, file) == 6;
    if (file) fclose(file);
    return right;
}
API int nvmlInit_v2(void) { return OK; }
API int nvmlInitWithFlags(unsigned flags) { return (void)flags, OK; }
API int nvmlShutdown(void) { return OK; }
API int nvmlSystemGetDriverVersion(char *to, unsigned size) { return snprintf(to, size, "999.1"), OK; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) {
    uint64_t head[6];
    *to = (void *)(uintptr_t)(index + 1);
    return card(*to, head) ? OK : INVALID;
}
API int nvmlDeviceGetCount_v2(unsigned *count) {
    void *device;
    for (*count = 0; !nvmlDeviceGetHandleByIndex_v2(*count, &device);) ++*count;
    return OK;
}
API int nvmlDeviceGetName(void *device, char *to, unsigned size) { return (void)device, snprintf(to, size, "Stub GPU"), OK; }
API int nvmlDeviceGetUUID(void *device, char *to, unsigned size) {
    uint64_t head[6];
    const unsigned char *u = (const unsigned char *)&head[4];
    if (!card(device, head)) return INVALID;
    snprintf(to, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return OK;
}
API int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    uint64_t head[6];
    if (getenv("STUB_NVML_WITHOUT_MEMORY")) return NOT_SUPPORTED;
    if (!card(device, head)) return INVALID;
    *memory = (struct memory){head[0], head[0] - head[1], head[1]};
    return OK;
}
API int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    struct memory plain;
    int result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (!result) *memory = (struct memory_v2){memory->version, plain.total, 0, plain.free, plain.used};
    return result;
}
