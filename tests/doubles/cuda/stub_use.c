/* The use of cards, in the test double of libnvidia-ml.so.1. Structs as in NVIDIA's nvml.h; each value is another, so
   that one that is read from a wrong place is seen. Without STUB_NVML_USE the card has none of this. */
#include <stdint.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, UNSIGNED_LONG_LONG = 3, UNSIGNED_INT = 1 };
enum { MEMORY_TEMP = 82, NVLINK_TX = 138, NVLINK_RX = 139, SAMPLES = 5, PROCESSES = 2 };
union value { double d; unsigned ui; unsigned long ul; unsigned long long ull; };
struct rates { unsigned gpu, memory; };
struct sample { unsigned long long at; union value value; };
struct process { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; };
struct field { unsigned id, scope; long long at, latency; unsigned type, answer; union value value; };

static int answer(void) { return getenv("STUB_NVML_USE") ? OK : NOT_SUPPORTED; }
static int is(unsigned *to, unsigned value) { return *to = value, answer(); }

API int nvmlDeviceGetMinorNumber(void *device, unsigned *to) { return *to = (unsigned)(uintptr_t)device - 1, OK; }
API int nvmlDeviceGetUtilizationRates(void *device, struct rates *to) {
    return (void)device, *to = (struct rates){41, 42}, answer();
}
API int nvmlDeviceGetEncoderUtilization(void *device, unsigned *to, unsigned *period) {
    return (void)device, *period = 167000, is(to, 43);
}
API int nvmlDeviceGetDecoderUtilization(void *device, unsigned *to, unsigned *period) {
    return (void)device, *period = 167000, is(to, 44);
}
API int nvmlDeviceGetPowerUsage(void *device, unsigned *to) { return (void)device, is(to, 250001); }
API int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *to) { return (void)device, is(to, 700002); }
API int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *to) {
    return (void)device, *to = 0x123456789abULL, answer();
}
API int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *to) { return (void)device, is(to, 61 + sensor); }
API int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *to) { return (void)device, is(to, 1980 + kind); }
API int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *to) {
    return (void)device, is(to, 7000 + counter);
}
API int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *to) { return (void)device, is(to, 8); }
API int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
    (void)device;
    for (int n = 0; n < count; n++) {
        struct field *f = &fields[n];
        f->answer = OK;
        if (f->id == MEMORY_TEMP) f->type = UNSIGNED_INT, f->value.ui = 77;
        else if ((f->id == NVLINK_TX || f->id == NVLINK_RX) && f->scope == ~0u)
            f->type = UNSIGNED_LONG_LONG, f->value.ull = 0x100000000ULL + f->id;
        else f->answer = NOT_SUPPORTED;
    }
    return answer();
}
/* Five samples, one each second from 10 s on: 0, 100, 50, 50 and 50 percent. */
API int nvmlDeviceGetSamples(void *device, unsigned kind, unsigned long long last, unsigned *type, unsigned *count,
                             struct sample *to) {
    static const unsigned part[SAMPLES] = {0, 100, 50, 50, 50};
    const char *most = getenv("STUB_NVML_USE");
    unsigned found = 0, limit = most ? (unsigned)atoi(most) : 0;
    (void)device, (void)kind, *type = UNSIGNED_INT;
    for (unsigned n = 0; n < SAMPLES && n < limit; n++) {
        if ((n + 10) * 1000000ULL <= last) continue;
        if (to) to[found] = (struct sample){(n + 10) * 1000000ULL, {.ui = part[n]}};
        found++;
    }
    *count = found;
    return most ? found ? OK : NOT_FOUND : NOT_SUPPORTED;
}
API int nvmlDeviceGetProcessUtilization(void *device, struct process *to, unsigned *count, unsigned long long last) {
    if ((void)device, answer()) return answer();
    if (!to) return *count = PROCESSES, INSUFFICIENT_SIZE;
    to[0] = (struct process){4711, last + 1, 40, 1, 2, 3};
    to[1] = (struct process){4712, last + 1, 10, 1, 2, 3};
    return *count = PROCESSES, OK;
}
