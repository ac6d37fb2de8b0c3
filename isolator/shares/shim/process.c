/* See process.h. */
#define _GNU_SOURCE
#include "process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "accounts.h"
#include "graphs.h"
#include "physical.h"
#include "pools.h"
#include "symbols.h"
#include "table.h"
#include "windows.h"

enum { MOST_DEVICES = 64, MOST_WRAPPED = 128 };
enum { NEW, STARTING, CLOSED, OPEN };

struct driver driver;
__thread int inside __attribute__((tls_model("initial-exec")));
static int state = NEW;
static char problem[4400] = "";
static signed char cards[MOST_DEVICES]; /* card + 1; 0: not asked for yet */
static struct {
    void *theirs, *ours;
} wrapped[MOST_WRAPPED];
static int wrapped_count;

static void find_functions(const struct object *real) {
    wrapped_count = 0;
#define WRAP(name, parameters)                                                                                         \
    driver.name = (CUresult(*) parameters)symbol_of(real, #name);                                                      \
    wrapped[wrapped_count].theirs = (void *)driver.name;                                                               \
    wrapped[wrapped_count++].ours = (void *)name;
#define ASK(name, parameters) driver.name = (CUresult(*) parameters)symbol_of(real, #name);
    WRAPPED(WRAP)
    ASKED(ASK)
#undef WRAP
#undef ASK
}

static int start(void) {
    const struct object *real = object_named("/libmgpu-real-cuda.so");
    if (!real) {
        snprintf(problem, sizeof problem, "libmgpu-real-cuda.so is not loaded");
        return CLOSED;
    }
    find_functions(real);
    if (share_open(real, O_RDWR, problem, sizeof problem)) return CLOSED;
    if (!accounts_join()) return OPEN;
    snprintf(problem, sizeof problem, "%d processes have it already", MOST_PROCESSES);
    return CLOSED;
}

int started(void) {
    int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (now >= CLOSED) return now == OPEN;
    now = NEW;
    if (__atomic_compare_exchange_n(&state, &now, STARTING, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        __atomic_store_n(&state, start(), __ATOMIC_RELEASE);
    else
        while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTING) sched_yield();
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == OPEN;
}

const char *start_problem(void) { return problem; }

/* A fork is a process of its own, which holds nothing yet. */
static void in_child(void) {
    if (state == STARTING) { /* by a thread that is not in the child, which starts by itself */
        share_closed();
        accounts_forget();
        state = NEW;
    }
    if (state != OPEN) return;
    accounts_forget();
    tables_forked();
    pools_forked();
    physical_forked();
    graphs_forked();
    windows_forked();
    if (share_forked() || accounts_join()) {
        snprintf(problem, sizeof problem, "the child of a fork finds no place in it");
        state = CLOSED;
    }
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int card_of(CUdevice device) {
    unsigned char uuid[16];
    if (device < 0 || device >= MOST_DEVICES || !started()) return -1;
    if (cards[device]) return cards[device] - 1;
    CUresult (*ask)(unsigned char *, CUdevice) =
        driver.cuDeviceGetUuid_v2 ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
    if (!ask || ask(uuid, device)) return -1;
    int card = card_with(uuid);
    if (card >= 0) cards[device] = (signed char)(card + 1);
    return card;
}

CUdevice device_of(int card) {
    for (CUdevice device = 0; device < MOST_DEVICES; device++)
        if (cards[device] == card + 1) return device;
    return -1;
}

int current_card(void) {
    CUdevice device;
    return driver.cuCtxGetDevice && !driver.cuCtxGetDevice(&device) ? card_of(device) : -1;
}

int card_at(const struct location *location) {
    switch (location->type) {
    case LOCATION_DEVICE: return card_of(location->id);
    case LOCATION_PART: return card_of(location->of.device);
    case LOCATION_HOST:
    case LOCATION_NUMA:
    case LOCATION_OWN_NUMA: return ON_HOST;
    default: return current_card();
    }
}

handle current_context(void) {
    handle context = NULL;
    if (driver.cuCtxGetCurrent && driver.cuCtxGetCurrent(&context)) return NULL;
    return context;
}

int is_captured(handle stream, int own) {
    int status = 0;
    CUresult (*ask)(handle, int *) =
        own && driver.cuStreamIsCapturing_ptsz ? driver.cuStreamIsCapturing_ptsz : driver.cuStreamIsCapturing;
    return ask && !ask(stream, &status) && status;
}

void *in_place_of(void *function) {
    for (int i = 0; function && i < wrapped_count; i++)
        if (wrapped[i].theirs == function) return wrapped[i].ours;
    return function;
}
