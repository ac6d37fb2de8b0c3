/* A test double of NVIDIA's libcuda.so.1, of our own: no code and no header of NVIDIA's.
 *
 * A card is a file, card0, card1, … in the directory STUB_CARDS: its memory, its time, and what each process has of
 * both, as NVML would tell. A process has one queue; a kernel holds its card for gridDimX µs, alone, and runs nothing.
 * Addresses are numbers: there is no memory behind them. With STUB_CUDA_NULL launches and events do nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stub.h"

/* ---- cards */

struct card {
    uint64_t total, used, busy_ns, launches;
    unsigned char uuid[16];
    struct { int32_t pid, pad; uint64_t used, busy_ns; } process[PROCESSES];
};
static struct { struct card *card; int fd, slot; } cards[CARDS];
static int card_count;
int initialized, null, broken;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void lock(int device, short type, off_t at) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    while (fcntl(cards[device].fd, F_OFD_SETLKW, &l) && errno == EINTR) {}
}

static void forget(struct card *card, int slot) {
    card->used -= card->process[slot].used;
    memset(&card->process[slot], 0, sizeof card->process[slot]);
}

static int open_card(int device) {
    char path[4096];
    snprintf(path, sizeof path, "%s/card%d", getenv("STUB_CARDS"), device);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return 0;
    struct card *card = mmap(NULL, sizeof *card, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cards[device].fd = fd;
    cards[device].card = card;
    lock(device, F_WRLCK, 0);
    for (int i = 0; i < PROCESSES; i++)
        if (card->process[i].pid && kill(card->process[i].pid, 0) && errno == ESRCH) forget(card, i);
    for (int i = 0; i < PROCESSES; i++)
        if (!card->process[i].pid) {
            card->process[i].pid = getpid();
            cards[device].slot = i;
            break;
        }
    lock(device, F_UNLCK, 0);
    return 1;
}

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER; /* locks of files are the process', not the thread's */

static CUresult take(int device, uint64_t bytes) {
    struct card *card = cards[device].card;
    pthread_mutex_lock(&counting);
    lock(device, F_WRLCK, 0);
    int fits = bytes <= card->total - card->used;
    if (fits) {
        card->used += bytes;
        card->process[cards[device].slot].used += bytes;
    }
    lock(device, F_UNLCK, 0);
    pthread_mutex_unlock(&counting);
    return fits ? OK : OOM;
}

static void give(int device, uint64_t bytes) {
    pthread_mutex_lock(&counting);
    lock(device, F_WRLCK, 0);
    cards[device].card->used -= bytes;
    cards[device].card->process[cards[device].slot].used -= bytes;
    lock(device, F_UNLCK, 0);
    pthread_mutex_unlock(&counting);
}

__attribute__((destructor)) static void end(void) {
    for (int i = 0; i < card_count; i++) {
        lock(i, F_WRLCK, 0);
        forget(cards[i].card, cards[i].slot);
        lock(i, F_UNLCK, 0);
    }
}

/* ---- the queue of kernels and events */

struct work { struct work *next; struct event *event; int device; uint64_t us; };
static struct work *head, **tail = &head;
static int in_flight;

static void run(const struct work *work) {
    struct timespec for_us = {(time_t)(work->us / 1000000), (long)(work->us % 1000000 * 1000)};
    struct card *card = cards[work->device].card;
    lock(work->device, F_WRLCK, 1);
    uint64_t began = now();
    nanosleep(&for_us, NULL);
    uint64_t took = now() - began;
    __atomic_add_fetch(&card->busy_ns, took, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&card->launches, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&card->process[cards[work->device].slot].busy_ns, took, __ATOMIC_SEQ_CST);
    lock(work->device, F_UNLCK, 1);
}

static void *work_off(void *none) {
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (!head) pthread_cond_wait(&changed, &mutex);
        struct work *work = head;
        if (!(head = work->next)) tail = &head;
        pthread_mutex_unlock(&mutex);
        if (!work->event) run(work);
        pthread_mutex_lock(&mutex);
        if (work->event) {
            work->event->at = now();
            work->event->pending--;
        }
        in_flight--;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
        free(work);
    }
    return none;
}

void push(int device, uint64_t us, struct event *event) {
    struct work *work = calloc(1, sizeof *work);
    *work = (struct work){NULL, event, device, us};
    pthread_mutex_lock(&mutex);
    if (event) event->pending++;
    *tail = work;
    tail = &work->next;
    in_flight++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

int is_pending(struct event *event) {
    pthread_mutex_lock(&mutex);
    int pending = event->pending;
    pthread_mutex_unlock(&mutex);
    return pending;
}

void drain(void) {
    pthread_mutex_lock(&mutex);
    while (in_flight) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* ---- devices and contexts */

static struct context primary[CARDS];
__thread struct context *current;

API CUresult cuInit(unsigned flags) {
    pthread_t thread;
    (void)flags;
    if (initialized) return OK;
    if (!getenv("STUB_CARDS")) return NO_DEVICE;
    while (card_count < CARDS && open_card(card_count)) {
        primary[card_count] = (struct context){card_count, 1, 0};
        card_count++;
    }
    if (!card_count) return NO_DEVICE;
    null = getenv("STUB_CUDA_NULL") != NULL;
    pthread_create(&thread, NULL, work_off, NULL);
    pthread_detach(thread);
    return initialized = 1, OK;
}
API CUresult cuDriverGetVersion(int *version) { return *version = 13000, OK; }
API CUresult cuDeviceGetCount(int *count) { return *count = card_count, initialized ? OK : NOT_INITIALIZED; }
API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (!initialized) return NOT_INITIALIZED;
    return *device = ordinal, ordinal < card_count ? OK : INVALID_DEVICE;
}
API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) { return memcpy(uuid, cards[device].card->uuid, 16), OK; }
API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { return *bytes = cards[device].card->total, OK; }
API CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device) {
    primary[device].retained++;
    return *context = &primary[device], OK;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    return *active = primary[device].retained > 0, OK;
}
API CUresult cuCtxCreate_v2(struct context **context, unsigned flags, CUdevice device) {
    (void)flags;
    *context = calloc(1, sizeof **context);
    **context = (struct context){device, 0, 1};
    return current = *context, OK;
}
API CUresult cuCtxSetCurrent(struct context *context) { return current = context, OK; }
API CUresult cuCtxGetCurrent(struct context **context) { return *context = current, OK; }
API CUresult cuCtxGetDevice(CUdevice *device) { return current ? (*device = current->device, OK) : 201; }

/* ---- memory: pointers and arrays alike */

struct pool { int device; uint64_t live, reserved, keeps; };
struct memory { struct memory *next; CUdeviceptr at; uint64_t bytes; struct context *context; struct pool *pool; };
static struct memory *memories;
static CUdeviceptr next_address = 0x700000000000;
static struct pool default_pool[CARDS], graph_pool[CARDS];

static CUresult grow(struct pool *pool, uint64_t bytes) {
    uint64_t more = pool->live + bytes > pool->reserved ? pool->live + bytes - pool->reserved : 0;
    if (more && take(pool->device, more)) return OOM;
    pool->reserved += more;
    pool->live += bytes;
    return OK;
}
static void trim(struct pool *pool, uint64_t keep) {
    uint64_t left = pool->live > keep ? pool->live : keep;
    if (left >= pool->reserved) return;
    give(pool->device, pool->reserved - left);
    pool->reserved = left;
}
static CUresult allocate(CUdeviceptr *to, size_t bytes, struct pool *pool) {
    if (!current) return 201;
    if (!bytes) return INVALID;
    if (pool ? grow(pool, bytes) : take(current->device, bytes)) return OOM;
    struct memory *memory = calloc(1, sizeof *memory);
    pthread_mutex_lock(&mutex);
    *memory = (struct memory){memories, next_address, bytes, current, pool};
    next_address += (bytes + 0xfffff) & ~0xfffffull;
    memories = memory;
    pthread_mutex_unlock(&mutex);
    return *to = memory->at, OK;
}
static void let_go(struct memory **at) {
    struct memory *memory = *at;
    *at = memory->next;
    if (memory->pool) {
        memory->pool->live -= memory->bytes;
        trim(memory->pool, memory->pool->keeps);
    } else {
        give(memory->context->device, memory->bytes);
    }
    free(memory);
}
API CUresult cuMemFree_v2(CUdeviceptr pointer) {
    CUresult result = INVALID;
    pthread_mutex_lock(&mutex);
    for (struct memory **at = &memories; *at && result; at = &(*at)->next)
        if ((*at)->at == pointer) {
            let_go(at);
            result = OK;
            break;
        }
    pthread_mutex_unlock(&mutex);
    return result;
}
static void free_all_of(const struct context *context) {
    pthread_mutex_lock(&mutex);
    for (struct memory **at = &memories; *at;)
        if ((*at)->context == context && !(*at)->pool) let_go(at);
        else at = &(*at)->next;
    pthread_mutex_unlock(&mutex);
}
API CUresult cuCtxDestroy_v2(struct context *context) { return free_all_of(context), current = NULL, OK; }
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return primary[device].retained = 0, free_all_of(&primary[device]), OK; }
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (!--primary[device].retained) free_all_of(&primary[device]);
    return OK;
}
/* A driver may call its own exports: what it allocates thus must not be counted twice. */
API CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) { return allocate(to, bytes, NULL); }
API CUresult cuMemAllocManaged(CUdeviceptr *to, size_t bytes, unsigned flags) {
    CUresult (*through_the_loader)(CUdeviceptr *, size_t) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    (void)flags;
    return (through_the_loader ? through_the_loader : cuMemAlloc_v2)(to, bytes);
}
API CUresult cuMemAlloc(unsigned *to, unsigned bytes) {
    CUdeviceptr wide;
    CUresult result = allocate(&wide, bytes, NULL);
    return result ? result : (*to = (unsigned)wide, OK);
}
API CUresult cuMemAllocPitch_v2(CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return allocate(to, *pitch * height, NULL);
}
struct array { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
static size_t texel(int format) { return format == 0x20 ? 4 : format == 0x10 ? 2 : 1; }
API CUresult cuArrayCreate_v2(CUdeviceptr *to, const struct array *a) {
    return allocate(to, a->width * (a->height ? a->height : 1) * a->channels * texel(a->format), NULL);
}
API CUresult cuArray3DCreate_v2(CUdeviceptr *to, const struct array3d *a) {
    size_t height = a->height ? a->height : 1, depth = a->depth ? a->depth : 1;
    return allocate(to, a->width * height * depth * a->channels * texel(a->format), NULL);
}
API CUresult cuMipmappedArrayCreate(CUdeviceptr *to, const struct array3d *a, unsigned levels) {
    size_t bytes = 0, width = a->width, height = a->height, depth = a->depth;
    do {
        bytes += width * (height ? height : 1) * (depth ? depth : 1) * a->channels * texel(a->format);
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : height;
        depth = depth > 1 && !(a->flags & 5) ? depth / 2 : depth;
    } while (--levels);
    return allocate(to, bytes, NULL);
}
API CUresult cuArrayDestroy(CUdeviceptr array) { return cuMemFree_v2(array); }
API CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    struct card *card = cards[current ? current->device : 0].card;
    *left = card->total - card->used;
    return *total = card->total, OK;
}
API CUresult cuMemAllocHost_v2(void **to, size_t bytes) { return *to = malloc(bytes), OK; }
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *to, const char *shared, unsigned flags) { return (void)shared, (void)flags, *to = 0x600000000000, OK; }

/* ---- physical memory: handles are small numbers, and are used again */

enum { PHYSICALS = 4096, MAPPINGS = 4096 };
static pthread_mutex_t physicals = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t bytes; int device, handles, maps, imported, host; } physical[PHYSICALS];
static struct { CUdeviceptr at; uint64_t bytes; int of; } mapping[MAPPINGS];
static int place_of_handle[PHYSICALS]; /* handle to place + 1 */

static CUresult handle_for(uint64_t *to, int place) {
    for (uint64_t handle = 1; handle < PHYSICALS; handle++)
        if (!place_of_handle[handle]) return place_of_handle[handle] = place + 1, *to = handle, OK;
    return OOM;
}
static CUresult make(uint64_t *to, size_t bytes, int device, int imported, int host) {
    int place = 0;
    if (!imported && !host && take(device, bytes)) return OOM;
    pthread_mutex_lock(&physicals);
    while (physical[place].handles || physical[place].maps) place++;
    physical[place].bytes = bytes;
    physical[place].device = device;
    physical[place].handles = 1;
    physical[place].imported = imported;
    physical[place].host = host;
    CUresult result = handle_for(to, place);
    pthread_mutex_unlock(&physicals);
    return result;
}
static void check(int place) {
    if (physical[place].handles || physical[place].maps || physical[place].imported || physical[place].host) return;
    give(physical[place].device, physical[place].bytes);
}
API CUresult cuMemCreate(uint64_t *to, size_t bytes, const int *properties, uint64_t flags) {
    (void)flags;
    int on_host = properties[2] >= 2 && properties[2] <= 4; /* CUmemLocationType: a part of a card is 6 */
    return make(to, bytes, properties[3] & 255, 0, on_host);
}
API CUresult cuMemRelease(uint64_t handle) {
    pthread_mutex_lock(&physicals);
    int place = place_of_handle[handle] - 1;
    if (place >= 0) {
        place_of_handle[handle] = 0;
        physical[place].handles--;
        check(place);
    }
    pthread_mutex_unlock(&physicals);
    if (place >= 0 && getenv("STUB_SLOW")) usleep(100); /* meanwhile another thread may be given its number */
    return place < 0 ? INVALID : OK;
}
API CUresult cuMemImportFromShareableHandle(uint64_t *to, void *shared, int type) {
    return (void)type, make(to, (uintptr_t)shared, current->device, 1, 0); /* a test says how large it is */
}
API CUresult cuMemGetAllocationPropertiesFromHandle(int *properties, uint64_t handle) {
    int place = place_of_handle[handle] - 1;
    properties[2] = physical[place].host ? 2 : 1;
    return properties[3] = physical[place].device, OK;
}
API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
    (void)flags;
    int place = place_of_handle[handle] - 1, i = 0;
    if (place < 0 || offset + bytes > physical[place].bytes) return INVALID;
    while (mapping[i].bytes) i++;
    mapping[i].at = at;
    mapping[i].bytes = bytes;
    mapping[i].of = place;
    return physical[place].maps++, OK;
}
API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    for (int i = 0; i < MAPPINGS; i++)
        if (mapping[i].bytes && mapping[i].at >= at && mapping[i].at < at + bytes) {
            mapping[i].bytes = 0;
            physical[mapping[i].of].maps--;
            check(mapping[i].of);
        }
    return OK;
}
API CUresult cuMemRetainAllocationHandle(uint64_t *to, void *address) {
    CUdeviceptr at = (uintptr_t)address;
    for (int i = 0; i < MAPPINGS; i++)
        if (mapping[i].bytes && at >= mapping[i].at && at < mapping[i].at + mapping[i].bytes)
            return physical[mapping[i].of].handles++, handle_for(to, mapping[i].of);
    return INVALID;
}
API CUresult cuMemMapArrayAsync(void *list, unsigned count, void *stream) { return (void)list, (void)count, (void)stream, OK; }

/* ---- graphs: what they allocate, and for how long they run */

struct executable { uint64_t us, bytes[CARDS]; };
struct graph *capturing;
static int capturing_own; /* on the default stream of a thread */
API CUresult cuGraphCreate(struct graph **graph, unsigned flags) { return (void)flags, *graph = calloc(1, sizeof **graph), OK; }
static CUresult add(struct graph *graph, int device, uint64_t bytes, CUdeviceptr *to) {
    graph->device[graph->nodes] = device;
    graph->bytes[graph->nodes++] = bytes;
    *to = next_address;
    return next_address += 0x100000000, OK;
}
API CUresult cuGraphAddMemAllocNode(void **node, struct graph *graph, void **after, size_t count, uint64_t *parameters) {
    (void)after, (void)count;
    *node = (void *)(uintptr_t)(graph->nodes + 1);
    return add(graph, ((int *)parameters)[3], parameters[13], (CUdeviceptr *)&parameters[14]);
}
API CUresult cuGraphAddNode(void **node, struct graph *graph, void **after, size_t count, uint64_t *parameters) {
    return *(int *)parameters == ALLOC_NODE ? cuGraphAddMemAllocNode(node, graph, after, count, parameters + 2) : NOT_SUPPORTED;
}
static struct graph *asked;
API CUresult cuGraphGetNodes(struct graph *graph, void **nodes, size_t *count) {
    asked = graph;
    *count = (size_t)graph->nodes + (graph->below != NULL);
    for (int i = 0; nodes && i < graph->nodes; i++) nodes[i] = (void *)(uintptr_t)(i + 1);
    if (nodes && graph->below) nodes[graph->nodes] = (void *)(uintptr_t)33;
    return OK;
}
/* A child is the first node of its graph, and has the number after all others. */
API CUresult cuGraphAddChildGraphNode(void **node, struct graph *graph, void **after, size_t count, struct graph *below) {
    (void)after, (void)count;
    graph->below = below;
    return *node = (void *)(uintptr_t)33, OK;
}
API CUresult cuGraphNodeGetType(void *node, int *type) { return *type = (uintptr_t)node == 33 ? CHILD_NODE : ALLOC_NODE, OK; }
API CUresult cuGraphChildGraphNodeGetGraph(void *node, struct graph **graph) { return (void)node, *graph = asked->below, OK; }
API CUresult cuGraphMemAllocNodeGetParams(void *node, uint64_t *parameters) {
    memset(parameters, 0, 120);
    ((int *)parameters)[2] = 1;
    ((int *)parameters)[3] = asked->device[(uintptr_t)node - 1];
    return parameters[13] = asked->bytes[(uintptr_t)node - 1], OK;
}
static void back(struct executable *executable, const struct graph *graph) {
    for (; graph; graph = graph->below)
        for (int i = 0; i < graph->nodes; i++) executable->bytes[graph->device[i]] += graph->bytes[i];
}
API CUresult cuGraphInstantiateWithFlags(struct executable **to, struct graph *graph, uint64_t flags) {
    (void)flags;
    *to = calloc(1, sizeof **to);
    back(*to, graph);
    return (*to)->us = graph->us, OK;
}
API CUresult cuGraphExecDestroy(struct executable *executable) { return free(executable), OK; }
/* It frees what it allocates, and the card keeps it for the next. */
API CUresult cuGraphUpload(struct executable *executable, void *stream) {
    (void)stream;
    for (int device = 0; device < card_count; device++) {
        struct pool *pool = &graph_pool[device];
        pool->device = device;
        if (executable->bytes[device] && grow(pool, executable->bytes[device])) return OOM;
        pool->live -= executable->bytes[device];
    }
    return OK;
}
API CUresult cuGraphInstantiateWithParams(struct executable **to, struct graph *graph, uint64_t *parameters) {
    CUresult result = cuGraphInstantiateWithFlags(to, graph, 0);
    return result || !(parameters[0] & 2) ? result : cuGraphUpload(*to, NULL);
}
API CUresult cuGraphLaunch(struct executable *executable, void *stream) {
    CUresult result = cuGraphUpload(executable, stream);
    if (!result && executable->us && !null) push(current->device, executable->us, NULL);
    return result;
}
API CUresult cuDeviceGraphMemTrim(CUdevice device) { return trim(&graph_pool[device], 0), OK; }
API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, uint64_t *value) {
    return *value = attribute ? graph_pool[device].reserved : graph_pool[device].live, OK;
}
API CUresult cuStreamBeginCapture_v2(void *stream, int mode) {
    (void)stream, (void)mode;
    return capturing_own = 0, cuGraphCreate(&capturing, 0);
}
API CUresult cuStreamBeginCapture_v2_ptsz(void *stream, int mode) {
    CUresult result = cuStreamBeginCapture_v2(stream, mode);
    return capturing_own = 1, result;
}
API CUresult cuStreamEndCapture(void *stream, struct graph **graph) { return (void)stream, *graph = capturing, capturing = NULL, OK; }
API CUresult cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = capturing && !capturing_own, OK; }
API CUresult cuStreamIsCapturing_ptsz(void *stream, int *status) { return (void)stream, *status = capturing && capturing_own, OK; }

/* ---- pools */

static struct pool *current_pool(void) {
    default_pool[current->device].device = current->device;
    return &default_pool[current->device];
}
API CUresult cuDeviceGetMemPool(struct pool **pool, CUdevice device) {
    default_pool[device].device = device;
    return *pool = &default_pool[device], OK;
}
API CUresult cuDeviceGetDefaultMemPool(struct pool **pool, CUdevice device) {
    return device < card_count ? cuDeviceGetMemPool(pool, device) : INVALID_DEVICE;
}
API CUresult cuMemPoolCreate(struct pool **pool, const int *properties) {
    *pool = calloc(1, sizeof **pool);
    return (*pool)->device = properties[3], OK;
}
API CUresult cuMemPoolDestroy(struct pool *pool) { return trim(pool, 0), OK; }
API CUresult cuMemPoolTrimTo(struct pool *pool, size_t keep) { return trim(pool, keep), OK; }
API CUresult cuMemPoolSetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    return attribute == 4 ? (pool->keeps = *value, OK) : NOT_SUPPORTED;
}
API CUresult cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    return attribute == 5 ? (*value = pool->reserved, OK) : NOT_SUPPORTED;
}
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *to, size_t bytes, struct pool *pool, void *stream) {
    (void)stream;
    return capturing ? add(capturing, pool->device, bytes, to) : allocate(to, bytes, pool);
}
API CUresult cuMemAllocAsync(CUdeviceptr *to, size_t bytes, void *stream) { return cuMemAllocFromPoolAsync(to, bytes, current_pool(), stream); }
API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *to, size_t bytes, void *stream) { return cuMemAllocAsync(to, bytes, stream); }
API CUresult cuMemFreeAsync(CUdeviceptr pointer, void *stream) { return (void)stream, capturing ? OK : cuMemFree_v2(pointer); }
API CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, void *stream) { return cuMemFreeAsync(pointer, stream); }
