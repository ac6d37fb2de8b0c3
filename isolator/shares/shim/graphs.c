/* See graphs.h. */
#include "graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "accounts.h"
#include "process.h"
#include "room.h"
#include "table.h"

enum { DEEPEST = 8 };

static struct table executables = TABLE; /* those that allocate */
static int any;                          /* whether a graph ever did: the others cost nothing */
static uint64_t counted[MOST_CARDS];
static int trims = 1; /* how often unused memory was given back: graphs that ran since then have theirs */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int graph_allocates(int card, uint64_t bytes) {
    __atomic_store_n(&any, 1, __ATOMIC_RELEASE);
    return card >= 0 && account_fits(card, bytes) ? 0 : -1;
}

static uint64_t asked(int card, int attribute, uint64_t otherwise) {
    uint64_t bytes;
    CUdevice device = device_of(card);
    if (device < 0 || !driver.cuDeviceGetGraphMemAttribute) return otherwise;
    return driver.cuDeviceGetGraphMemAttribute(device, attribute, &bytes) ? otherwise : bytes;
}

void graphs_look(int card) {
    pthread_mutex_lock(&lock);
    uint64_t now = asked(card, GRAPH_RESERVED, counted[card]);
    account_change(card, counted[card], now);
    counted[card] = now;
    pthread_mutex_unlock(&lock);
}

static uint64_t allocated_by(handle graph, int depth, int *card);

static uint64_t allocated_at(handle node, int depth, int *card) {
    struct alloc_node params;
    handle below;
    int type;
    if (driver.cuGraphNodeGetType(node, &type)) return 0;
    if (type == NODE_CHILD_GRAPH && driver.cuGraphChildGraphNodeGetGraph && depth < DEEPEST)
        return driver.cuGraphChildGraphNodeGetGraph(node, &below) ? 0 : allocated_by(below, depth + 1, card);
    if (type != NODE_MEM_ALLOC || driver.cuGraphMemAllocNodeGetParams(node, &params)) return 0;
    *card = card_at(&params.pool.location);
    return params.bytes;
}

static uint64_t allocated_by(handle graph, int depth, int *card) {
    size_t count = 0;
    uint64_t bytes = 0;
    if (!driver.cuGraphGetNodes || !driver.cuGraphNodeGetType || !driver.cuGraphMemAllocNodeGetParams) return 0;
    if (driver.cuGraphGetNodes(graph, NULL, &count) || !count) return 0;
    handle *nodes = calloc(count, sizeof *nodes);
    if (nodes && !driver.cuGraphGetNodes(graph, nodes, &count))
        for (size_t i = 0; i < count; i++) bytes += allocated_at(nodes[i], depth, card);
    free(nodes);
    return bytes;
}

void graph_instantiated(handle executable, handle graph) {
    int card = -1;
    if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE)) return;
    uint64_t bytes = allocated_by(graph, 0, &card);
    if (bytes) table_put(&executables, (struct entry){.key = (uintptr_t)executable, .bytes = bytes, .card = card});
}

static int allocates(handle executable, struct entry *entry) {
    if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE)) return 0;
    return table_get(&executables, (uintptr_t)executable, entry);
}

void graph_destroyed(handle executable) {
    struct entry entry;
    if (table_take(&executables, (uintptr_t)executable, &entry) && entry.card >= 0) graphs_look(entry.card);
}

/* At most all that it allocates, less what the driver keeps for graphs and none uses. */
int graph_take(handle executable) {
    struct entry entry;
    if (!allocates(executable, &entry)) return 0;
    if (entry.card < 0) return -1;
    if (entry.count == __atomic_load_n(&trims, __ATOMIC_ACQUIRE)) return 0;
    graphs_look(entry.card);
    uint64_t kept = asked(entry.card, GRAPH_RESERVED, 0), used = asked(entry.card, GRAPH_USED, 0);
    uint64_t spare = kept > used ? kept - used : 0, grows = entry.bytes > spare ? entry.bytes - spare : 0;
    if (grows && room_take(entry.card, grows)) return -1;
    pthread_mutex_lock(&lock);
    counted[entry.card] += grows;
    pthread_mutex_unlock(&lock);
    return 0;
}

void graph_look(handle executable) {
    struct entry entry;
    int now = __atomic_load_n(&trims, __ATOMIC_ACQUIRE);
    if (!allocates(executable, &entry) || entry.card < 0 || entry.count == now) return;
    entry.count = now;
    table_put(&executables, entry);
    graphs_look(entry.card);
}

void graphs_trimmed(int card) {
    __atomic_fetch_add(&trims, 1, __ATOMIC_ACQ_REL);
    if (card >= 0) graphs_look(card);
}

void graphs_give_back(int card) {
    CUdevice device = device_of(card);
    if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE) || device < 0) return;
    if (driver.cuDeviceGraphMemTrim) driver.cuDeviceGraphMemTrim(device);
    graphs_trimmed(card);
}

void graphs_forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    memset(counted, 0, sizeof counted);
}
