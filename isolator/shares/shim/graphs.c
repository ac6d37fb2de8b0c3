/* See graphs.h. */
#include "graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "accounts.h"
#include "process.h"
#include "room.h"
#include "saturating.h"
#include "share.h"
#include "table.h"

static struct table executables[MOST_CARDS]; /* those that allocate, by the cards that they do it on */
static unsigned any;                         /* cards that a graph ever allocated on, as bits: others cost nothing */
static uint64_t counted[MOST_CARDS];
static int trims = 1; /* how often unused memory was given back: graphs that ran since then have theirs */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_used(int card) { return __atomic_load_n(&any, __ATOMIC_ACQUIRE) >> card & 1; }

int graph_allocates(int card, uint64_t bytes) {
    struct card_limits limits;
    if (card == ON_HOST) return 0;
    if (limits_of(card, &limits) || bytes > limits.memory) return -1;
    __atomic_fetch_or(&any, 1u << card, __ATOMIC_ACQ_REL);
    return 0;
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

static void add_graph(handle graph, uint64_t bytes[MOST_CARDS]);

static void add_node(handle node, uint64_t bytes[MOST_CARDS]) {
    struct alloc_node params;
    handle below;
    int type;
    if (driver.cuGraphNodeGetType(node, &type)) return;
    if (type == NODE_CHILD_GRAPH && driver.cuGraphChildGraphNodeGetGraph &&
        !driver.cuGraphChildGraphNodeGetGraph(node, &below))
        add_graph(below, bytes);
    if (type != NODE_MEM_ALLOC || driver.cuGraphMemAllocNodeGetParams(node, &params)) return;
    int card = card_at(&params.pool.location);
    if (card >= 0) bytes[card] = plus(bytes[card], params.bytes);
}

/* Add to `bytes` what a graph allocates on each card. */
static void add_graph(handle graph, uint64_t bytes[MOST_CARDS]) {
    size_t count = 0;
    if (!driver.cuGraphGetNodes || !driver.cuGraphNodeGetType || !driver.cuGraphMemAllocNodeGetParams) return;
    if (driver.cuGraphGetNodes(graph, NULL, &count) || !count) return;
    handle *nodes = calloc(count, sizeof *nodes);
    if (nodes && !driver.cuGraphGetNodes(graph, nodes, &count))
        for (size_t i = 0; i < count; i++) add_node(nodes[i], bytes);
    free(nodes);
}

void graph_instantiated(handle executable, handle graph) {
    uint64_t bytes[MOST_CARDS] = {0};
    if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE)) return;
    add_graph(graph, bytes);
    for (int card = 0; card < MOST_CARDS; card++)
        if (bytes[card])
            table_put(&executables[card], (struct entry){.key = (uintptr_t)executable, .bytes = bytes[card]});
}

void graph_forget(handle executable) {
    for (int card = 0; card < MOST_CARDS; card++)
        if (is_used(card)) table_take(&executables[card], (uintptr_t)executable, NULL);
}

void graphs_look_at_all(void) {
    for (int card = 0; card < MOST_CARDS; card++)
        if (is_used(card)) graphs_look(card);
}

/* At most all that it allocates, less what the driver keeps for graphs and none uses. */
static int take_on(int card, handle executable) {
    struct entry entry;
    if (!table_get(&executables[card], (uintptr_t)executable, &entry)) return 0;
    if (entry.count == __atomic_load_n(&trims, __ATOMIC_ACQUIRE)) return 0;
    graphs_look(card);
    uint64_t kept = asked(card, GRAPH_RESERVED, 0), used = asked(card, GRAPH_USED, 0);
    uint64_t spare = kept > used ? kept - used : 0, grows = entry.bytes > spare ? entry.bytes - spare : 0;
    if (grows && room_take(card, grows)) return -1;
    pthread_mutex_lock(&lock);
    counted[card] += grows;
    pthread_mutex_unlock(&lock);
    return 0;
}

int graph_take(handle executable) {
    int result = 0;
    for (int card = 0; card < MOST_CARDS && !result; card++)
        if (is_used(card)) result = take_on(card, executable);
    if (result) graphs_look_at_all(); /* what was counted of other cards is not taken */
    return result;
}

void graph_look(handle executable) {
    int now = __atomic_load_n(&trims, __ATOMIC_ACQUIRE);
    for (int card = 0; card < MOST_CARDS; card++) {
        struct entry entry;
        if (!is_used(card) || !table_get(&executables[card], (uintptr_t)executable, &entry)) continue;
        if (entry.count == now) continue;
        entry.count = now;
        table_put(&executables[card], entry);
        graphs_look(card);
    }
}

void graphs_trimmed(int card) {
    __atomic_fetch_add(&trims, 1, __ATOMIC_ACQ_REL);
    if (card >= 0) graphs_look(card);
}

void graphs_give_back(int card) {
    CUdevice device = device_of(card);
    if (!is_used(card) || device < 0) return;
    if (driver.cuDeviceGraphMemTrim) driver.cuDeviceGraphMemTrim(device);
    graphs_trimmed(card);
}

void graphs_forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    memset(counted, 0, sizeof counted);
}
