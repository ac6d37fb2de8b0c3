/* See table.h. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

static struct table *tables; /* all that were ever used */
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned bucket_of(uint64_t key) { return (unsigned)((key * 0x9e3779b97f4a7c15u) >> 52); }

static void note_table(struct table *table) {
    if (__atomic_load_n(&table->following, __ATOMIC_ACQUIRE)) return;
    pthread_mutex_lock(&tables_lock);
    if (!table->following) {
        struct table *rest = tables ? tables : table; /* the last leads to itself */
        tables = table;
        __atomic_store_n(&table->following, rest, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&tables_lock);
}

static struct entry *cut(struct entry **at, struct entry *to) {
    struct entry *entry = *at;
    *at = entry->next;
    if (to) *to = *entry;
    return entry;
}

static struct entry **find(struct table *table, uint64_t key) {
    struct entry **at = &table->bucket[bucket_of(key)];
    while (*at && (*at)->key != key) at = &(*at)->next;
    return at;
}

void table_put(struct table *table, struct entry entry) {
    struct entry *fresh = malloc(sizeof *fresh);
    if (!fresh) return; /* it stays counted until the process ends */
    *fresh = entry;
    note_table(table);
    pthread_mutex_lock(&table->lock);
    struct entry **at = find(table, entry.key);
    if (*at) free(cut(at, NULL));
    fresh->next = table->bucket[bucket_of(entry.key)];
    table->bucket[bucket_of(entry.key)] = fresh;
    pthread_mutex_unlock(&table->lock);
}

int table_get(struct table *table, uint64_t key, struct entry *to) {
    pthread_mutex_lock(&table->lock);
    struct entry *entry = *find(table, key);
    if (entry) *to = *entry;
    pthread_mutex_unlock(&table->lock);
    return entry != NULL;
}

int table_take(struct table *table, uint64_t key, struct entry *to) {
    pthread_mutex_lock(&table->lock);
    struct entry **at = find(table, key), *entry = *at ? cut(at, to) : NULL;
    pthread_mutex_unlock(&table->lock);
    free(entry);
    return entry != NULL;
}

int table_take_any(struct table *table, int (*wanted)(const struct entry *, const void *), const void *of,
                   struct entry *to) {
    struct entry *entry = NULL;
    pthread_mutex_lock(&table->lock);
    for (int bucket = 0; bucket < BUCKETS && !entry; bucket++)
        for (struct entry **at = &table->bucket[bucket]; *at && !entry; at = &(*at)->next)
            if (wanted(*at, of)) {
                entry = cut(at, to);
                break;
            }
    pthread_mutex_unlock(&table->lock);
    free(entry);
    return entry != NULL;
}

void tables_forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    tables_lock = fresh;
    for (struct table *table = tables; table; table = table->following == table ? NULL : table->following) {
        table->lock = fresh;
        memset(table->bucket, 0, sizeof table->bucket); /* its entries are the parent's: lost, and few */
    }
}
