/* A table by number: what each pointer, array or handle of this process is. */
#ifndef MGPU_TABLE_H
#define MGPU_TABLE_H
#include <pthread.h>
#include <stdint.h>

enum { BUCKETS = 4096 };

struct entry {
    struct entry *next;
    uint64_t key, bytes;
    int card;
    void *of;  /* the context of memory, the pool of pointers, the physical memory of handles and mappings */
    int count; /* of handles: how often it must be released */
};
struct table {
    pthread_mutex_t lock;
    struct entry *bucket[BUCKETS];
    struct table *following;
};
#define TABLE {PTHREAD_MUTEX_INITIALIZER, {0}, 0}

/* Note an entry; one of that key, which can only be outdated, goes. Its `next` is the table's. */
void table_put(struct table *table, struct entry entry);
/* Copy an entry, or take it out. Whether there was one. */
int table_get(struct table *table, uint64_t key, struct entry *to);
int table_take(struct table *table, uint64_t key, struct entry *to);
/* Take out any entry that `wanted` accepts. Whether there was one. */
int table_take_any(struct table *table, int (*wanted)(const struct entry *, const void *), const void *of,
                   struct entry *to);
/* Empty all tables: to be called in the child of a fork. */
void tables_forked(void);
#endif
