/* See pools.h. */
#include "pools.h"

#include <pthread.h>
#include <string.h>

#include "accounts.h"
#include "process.h"
#include "room.h"
#include "saturating.h"

enum { MOST_POOLS = 256 };

struct pool {
    handle pool;      /* null: the place is free */
    int card;         /* ON_HOST: its memory is not a card's */
    uint64_t live;    /* bytes allocated from it */
    uint64_t counted; /* bytes that the task's account has for it */
    int gone;
};
static struct pool pools[MOST_POOLS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER; /* two threads must not both count on what is spare */

handle pool_of(CUdevice device) {
    handle pool = NULL;
    if (driver.cuDeviceGetMemPool && !driver.cuDeviceGetMemPool(&pool, device)) return pool;
    if (driver.cuDeviceGetDefaultMemPool && !driver.cuDeviceGetDefaultMemPool(&pool, device)) return pool;
    return NULL;
}

static struct pool *place_of(handle pool) {
    for (int i = 0; i < MOST_POOLS; i++)
        if (pools[i].pool == pool) return &pools[i];
    return NULL;
}

/* The card of a pool that nobody made: each device has one of its own, from which others may take, too. */
static int card_of_default(handle pool) {
    handle own;
    for (CUdevice device = 0; driver.cuDeviceGetDefaultMemPool; device++) {
        if (driver.cuDeviceGetDefaultMemPool(&own, device)) break;
        if (own == pool) return card_of(device);
    }
    return current_card();
}

/* The place of a pool, a free one if it has none; null: all are taken. */
static struct pool *place_for(handle pool, int card) {
    struct pool *place = place_of(pool);
    if (place || !(place = place_of(NULL))) return place;
    *place = (struct pool){.pool = pool, .card = card};
    return place;
}

void pool_made(handle pool, const struct pool_properties *properties) {
    int card = card_at(&properties->location);
    if (card == ON_HOST && properties->type == ALLOCATION_MANAGED) card = current_card(); /* it may move there */
    pthread_mutex_lock(&lock);
    place_for(pool, card);
    pthread_mutex_unlock(&lock);
}

/* What the driver says that it keeps for a pool; `otherwise` where it says nothing. */
static uint64_t reserved(handle pool, uint64_t otherwise) {
    uint64_t bytes;
    if (!driver.cuMemPoolGetAttribute || driver.cuMemPoolGetAttribute(pool, POOL_RESERVED, &bytes)) return otherwise;
    return bytes > otherwise ? bytes : otherwise;
}

/* To be called with the lock held. */
static void look(struct pool *place) {
    if (place->card != ON_HOST) {
        uint64_t now = place->gone ? place->live : reserved(place->pool, place->live);
        account_change(place->card, place->counted, now);
        place->counted = now;
    }
    if (place->gone && !place->live) memset(place, 0, sizeof *place);
}

void pool_look(handle pool) {
    pthread_mutex_lock(&lock);
    struct pool *place = pool ? place_of(pool) : NULL;
    if (place) look(place);
    pthread_mutex_unlock(&lock);
}

void pool_destroyed(handle pool) {
    pthread_mutex_lock(&lock);
    struct pool *place = place_of(pool);
    if (place) {
        place->gone = 1;
        look(place);
    }
    pthread_mutex_unlock(&lock);
}

/* By how much a pool has to grow for so many bytes more. -1: it has no place here. */
static int growth(handle pool, uint64_t bytes, int *card, uint64_t *grows) {
    pthread_mutex_lock(&lock);
    struct pool *place = pool ? place_of(pool) : NULL;
    if (pool && !place) place = place_for(pool, card_of_default(pool));
    if (place) {
        uint64_t live = plus(place->live, bytes);
        *card = place->card;
        *grows = live > place->counted ? live - place->counted : 0;
    }
    pthread_mutex_unlock(&lock);
    return place ? 0 : -1;
}

int pool_take(handle pool, uint64_t bytes) {
    int card;
    uint64_t grows;
    pthread_mutex_lock(&taking);
    int result = growth(pool, bytes, &card, &grows);
    if (!result && card != ON_HOST && grows) result = room_take(card, grows);
    if (!result) {
        pthread_mutex_lock(&lock);
        struct pool *place = place_for(pool, card);
        if (place) {
            place->live = plus(place->live, bytes);
            if (card != ON_HOST) place->counted += grows;
        }
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&taking);
    return result;
}

void pool_give(handle pool, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    struct pool *place = place_of(pool);
    if (place) {
        place->live -= bytes < place->live ? bytes : place->live;
        look(place);
    }
    pthread_mutex_unlock(&lock);
}

void pools_give_back(int card) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_POOLS; i++) {
        struct pool *place = &pools[i];
        if (!place->pool || place->card != card || place->gone) continue;
        if (driver.cuMemPoolTrimTo) driver.cuMemPoolTrimTo(place->pool, 0);
        look(place);
    }
    pthread_mutex_unlock(&lock);
}

void pools_forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = taking = fresh;
    memset(pools, 0, sizeof pools);
}
