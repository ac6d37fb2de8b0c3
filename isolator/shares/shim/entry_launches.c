/* Work for the card: every way to start a kernel. */
#include "process.h"
#include "windows.h"

#define LAUNCH(name, stream, own, ...)                                                                                 \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    int entered = window_enter(stream, own);                                                                           \
    CALL(result, name, __VA_ARGS__);                                                                                   \
    window_leave(entered, stream, own);                                                                                \
    return result

CUresult cuLaunch(handle function) { LAUNCH(cuLaunch, NULL, 0, function); }
CUresult cuLaunchGrid(handle function, int width, int height) {
    LAUNCH(cuLaunchGrid, NULL, 0, function, width, height);
}
CUresult cuLaunchGridAsync(handle function, int width, int height, handle stream) {
    LAUNCH(cuLaunchGridAsync, stream, 0, function, width, height, stream);
}
CUresult cuLaunchKernel(handle function, GRID, handle stream, void **arguments, void **extra) {
    LAUNCH(cuLaunchKernel, stream, 0, function, GRID_PASSED, stream, arguments, extra);
}
CUresult cuLaunchKernel_ptsz(handle function, GRID, handle stream, void **arguments, void **extra) {
    LAUNCH(cuLaunchKernel_ptsz, stream, 1, function, GRID_PASSED, stream, arguments, extra);
}
CUresult cuLaunchKernelEx(const struct launch_config *config, handle function, void **arguments, void **extra) {
    LAUNCH(cuLaunchKernelEx, config->stream, 0, config, function, arguments, extra);
}
CUresult cuLaunchKernelEx_ptsz(const struct launch_config *config, handle function, void **arguments, void **extra) {
    LAUNCH(cuLaunchKernelEx_ptsz, config->stream, 1, config, function, arguments, extra);
}
CUresult cuLaunchCooperativeKernel(handle function, GRID, handle stream, void **arguments) {
    LAUNCH(cuLaunchCooperativeKernel, stream, 0, function, GRID_PASSED, stream, arguments);
}
CUresult cuLaunchCooperativeKernel_ptsz(handle function, GRID, handle stream, void **arguments) {
    LAUNCH(cuLaunchCooperativeKernel_ptsz, stream, 1, function, GRID_PASSED, stream, arguments);
}
/* Measured on the current context's card alone: the others of the list are held back by their own launches. */
CUresult cuLaunchCooperativeKernelMultiDevice(struct cooperative *list, unsigned count, unsigned flags) {
    LAUNCH(cuLaunchCooperativeKernelMultiDevice, count ? list[0].stream : NULL, 0, list, count, flags);
}
