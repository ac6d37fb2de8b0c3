/* The part of the test double of libcuda that starts work, and tells where its functions are. See stub_cuda.c.
 *
 * A kernel holds its card for as many microseconds as its grid is wide; one that a module has, for as many as its second
 * argument says. The kernel `fault` breaks the process, as an illegal address does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub.h"

API CUresult cuCtxSynchronize(void) { return drain(), broken; }
API CUresult cuStreamSynchronize(void *stream) { return (void)stream, drain(), broken; }
API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void)device;
    return *value = 100 + attribute, OK;
}

/* ---- modules: a text of which only the names of its kernels are known */

API CUresult cuModuleLoadData(char **module, const char *image) {
    if (broken) return broken;
    return strncmp(image, ".version", 8) ? BAD_PTX : (*module = strdup(image), OK);
}
API CUresult cuModuleGetFunction(char **function, const char *module, const char *name) {
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    return strstr(module, entry) ? (*function = strdup(name), OK) : NOT_FOUND;
}

/* ---- work */

static CUresult start(uint64_t us) {
    if (!initialized) return NOT_INITIALIZED;
    if (broken) return broken;
    if (null) return OK;
    if (capturing) capturing->us += us;
    else push(current->device, us, NULL);
    return OK;
}
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream
#define UNUSED (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)f, (void)a
API CUresult cuLaunchKernel(void *f, GRID, void **a, void **e) {
    UNUSED, (void)e;
    if (f && !strcmp(f, "fault")) return broken ? broken : (broken = ILLEGAL_ADDRESS, OK);
    return start(f ? *(uint32_t *)a[1] : gx);
}
API CUresult cuLaunchKernel_ptsz(void *f, GRID, void **a, void **e) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, a, e);
}
API CUresult cuLaunchCooperativeKernel(void *f, GRID, void **a) { return UNUSED, start(gx); }
API CUresult cuLaunchKernelEx(const unsigned *config, void *f, void **a, void **e) { return (void)f, (void)a, (void)e, start(config[0]); }
API CUresult cuLaunchGrid(void *f, int width, int height) { return (void)f, (void)height, start((uint64_t)width); }
API CUresult cuEventCreate(struct event **event, unsigned flags) { return (void)flags, *event = calloc(1, sizeof **event), OK; }
API CUresult cuEventRecord(struct event *event, void *stream) {
    (void)stream;
    if (null) event->at = now();
    else push(current->device, 0, event);
    return OK;
}
API CUresult cuEventQuery(struct event *event) {
    return is_pending(event) ? NOT_READY : OK;
}
API CUresult cuEventElapsedTime(float *ms, struct event *begin, struct event *end) {
    return *ms = (float)((double)(end->at - begin->at) / 1e6), OK;
}

/* ---- the other way to find a function: the newest version of a name, for the thread's own stream if it is asked */

API CUresult cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status) {
    static const char *const endings[] = {"_v2_ptsz", "_ptsz", "_v2", ""};
    char full[256];
    Dl_info self;
    dladdr((void *)cuGetProcAddress_v2, &self);
    void *handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *to = NULL;
    for (int i = flags & 2 ? 0 : version < 3020 ? 3 : 2; i < 4 && !*to; i++) {
        snprintf(full, sizeof full, "%s%s", name, endings[i]);
        *to = dlsym(handle, full);
        if (*to && dladdr(*to, &self) && strcmp(self.dli_sname, full)) *to = NULL;
    }
    if (status) *status = *to ? 0 : 1;
    return *to ? OK : NOT_FOUND;
}
API CUresult cuGetProcAddress(const char *name, void **to, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, to, version, flags, NULL);
}
/* Names that only begin as the driver's do. */
API int cuMemory_of_another_library(void) { return 42; }
