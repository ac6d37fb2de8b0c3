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
