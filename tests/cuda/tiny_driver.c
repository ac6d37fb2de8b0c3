/* The least of a libcuda.so.1: one card, and no C library, so that it loads under any. */
#define API __attribute__((visibility("default")))
typedef unsigned long long u64;
API int cuInit(unsigned flags) { return (void)flags, 0; }
API int cuCtxGetDevice(int *device) { return *device = 0; }
API int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(i + 1);
    return (void)device, 0;
}
API int cuMemAlloc_v2(u64 *to, u64 bytes) { return *to = 4096 + bytes, 0; }
API int cuLaunchKernel(void) { return 0; }

#if defined ANSWERS || defined ANSWERS_OTHERWISE
static int another_way(u64 *to, u64 bytes) { return cuMemAlloc_v2(to, bytes); }
API int cuGetProcAddress_v2(const char *name, void **to, int version, u64 flags, int *status) {
#ifdef ANSWERS
    *to = (void *)cuMemAlloc_v2, (void)another_way;
#else
    *to = (void *)another_way;
#endif
    return (void)name, (void)version, (void)flags, *status = 0;
}
#endif
