/* See physical.h. */
#include "physical.h"

#include <pthread.h>
#include <stdlib.h>

#include "accounts.h"
#include "process.h"
#include "room.h"
#include "table.h"

struct physical {
    pthread_mutex_t lock;
    uint64_t bytes; /* counted */
    int card, uses, imported;
};
static struct table handles = TABLE, mappings = TABLE;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

void physical_begin(void) { pthread_mutex_lock(&order); }
void physical_end(void) { pthread_mutex_unlock(&order); }

void physical_forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    order = fresh;
}

static void use(struct physical *physical, int by) {
    pthread_mutex_lock(&physical->lock);
    int left = physical->uses += by;
    pthread_mutex_unlock(&physical->lock);
    if (left) return;
    account_give(physical->card, physical->bytes);
    free(physical);
}

static void note(uint64_t memory, int card, uint64_t bytes, int imported) {
    struct physical *physical = malloc(sizeof *physical);
    if (!physical) return; /* it stays counted until the process ends */
    *physical = (struct physical){PTHREAD_MUTEX_INITIALIZER, bytes, card, 1, imported};
    table_put(&handles, (struct entry){.key = memory, .of = physical, .count = 1});
}

void physical_made(uint64_t memory, int card, uint64_t bytes) { note(memory, card, bytes, 0); }

void physical_imported(uint64_t memory) {
    struct allocation_properties properties = {0};
    struct entry entry;
    if (table_take(&handles, memory, &entry)) { /* of this process: the driver gave the same handle again */
        entry.count++;
        use(entry.of, 1);
        table_put(&handles, entry);
        return;
    }
    if (!driver.cuMemGetAllocationPropertiesFromHandle) return;
    if (driver.cuMemGetAllocationPropertiesFromHandle(&properties, memory)) return;
    int card = card_at(&properties.location);
    if (card != ON_HOST) note(memory, card, 0, 1);
}

void physical_released(uint64_t memory) {
    struct entry entry;
    if (!table_take(&handles, memory, &entry)) return;
    if (--entry.count) table_put(&handles, entry);
    use(entry.of, -1);
}

static int is_at(const struct entry *entry, const void *address) {
    uint64_t at = *(const uint64_t *)address;
    return at >= entry->key && at - entry->key < entry->bytes;
}

void physical_retained(uint64_t memory, CUdeviceptr address) {
    struct entry mapping, entry;
    uint64_t at = address;
    if (!table_take_any(&mappings, is_at, &at, &mapping)) return;
    use(mapping.of, 1);
    table_put(&mappings, mapping);
    if (!table_take(&handles, memory, &entry)) entry = (struct entry){.key = memory, .of = mapping.of};
    entry.count++;
    table_put(&handles, entry);
}

int physical_map(uint64_t memory, uint64_t end) {
    struct entry entry;
    if (!table_get(&handles, memory, &entry)) return 0;
    struct physical *physical = entry.of;
    pthread_mutex_lock(&physical->lock);
    uint64_t more = physical->imported && end > physical->bytes ? end - physical->bytes : 0;
    int result = more ? room_take(physical->card, more) : 0;
    if (!result) physical->bytes += more;
    pthread_mutex_unlock(&physical->lock);
    return result;
}

void physical_mapped(uint64_t memory, CUdeviceptr at, uint64_t bytes) {
    struct entry entry;
    if (!table_get(&handles, memory, &entry)) return;
    use(entry.of, 1);
    table_put(&mappings, (struct entry){.key = at, .bytes = bytes, .of = entry.of});
}

/* One call may end several mappings that lie one after the other. */
void physical_unmapped(CUdeviceptr at, uint64_t bytes) {
    struct entry mapping;
    uint64_t end = at + bytes;
    while (at < end && table_take(&mappings, at, &mapping)) {
        at += mapping.bytes;
        use(mapping.of, -1);
    }
}
