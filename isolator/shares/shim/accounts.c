/* See accounts.h. */
#define _GNU_SOURCE
#include "accounts.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "saturating.h"

static int slot = -1;
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER; /* of this process; byte 0 keeps out other processes */

/* What this process holds: what others write into its slot changes nothing. */
static uint64_t held[MOST_CARDS], context[MOST_CARDS];

static void reap(void) {
    uint32_t slots = usage->slots < MOST_PROCESSES ? usage->slots : MOST_PROCESSES;
    for (int each = 0; each < (int)slots; each++)
        if (each != slot && usage->process[each].pid && !slot_lives(each))
            memset(&usage->process[each], 0, sizeof usage->process[each]);
}

static int take_slot(void) {
    reap();
    for (int each = 0; each < MOST_PROCESSES; each++) {
        struct process_usage *process = &usage->process[each];
        if (process->pid || slot_lock(each)) continue;
        slot_locked();
        memset(process, 0, sizeof *process);
        process->pid = getpid();
        if (usage->slots < (uint32_t)each + 1) usage->slots = (uint32_t)each + 1;
        slot = each;
        return 0;
    }
    return -1;
}

/* 0: no other thread or process of the task changes accounts until `end`. */
static int begin(void) {
    pthread_mutex_lock(&threads);
    if (share_reopened()) {
        pthread_mutex_unlock(&threads);
        return -1;
    }
    accounts_lock();
    return 0;
}

static void end(void) {
    accounts_unlock();
    pthread_mutex_unlock(&threads);
}

int accounts_join(void) {
    accounts_lock();
    int result = take_slot();
    accounts_unlock();
    return result;
}

int accounts_ready(void) { return slot >= 0; }

void accounts_forget(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    threads = fresh; /* a thread that is not in the child may have had it */
    memset(held, 0, sizeof held);
    memset(context, 0, sizeof context);
    slot = -1;
}

static void post(int card) {
    struct process_usage *process = &usage->process[slot];
    process->held[card] = held[card];
    process->context[card] = context[card];
}

static void note_peak(int card, const struct card_limits *limits) {
    uint64_t used = used_of(card, limits);
    if (used > usage->card[card].peak) usage->card[card].peak = used;
}

/* What so many bytes cost: the first of a card bring a context with them. */
static uint64_t cost(int card, const struct card_limits *limits, uint64_t bytes) {
    return plus(bytes, context[card] ? 0 : limits->context);
}

static int has_room(int card, const struct card_limits *limits, uint64_t bytes) {
    uint64_t used = used_of(card, limits);
    return used <= limits->memory && cost(card, limits, bytes) <= limits->memory - used;
}

static int fits(int card, const struct card_limits *limits, uint64_t bytes) {
    if (has_room(card, limits, bytes)) return 1;
    reap();
    return has_room(card, limits, bytes);
}

int account_fits(int card, uint64_t bytes) {
    struct card_limits limits;
    if (slot < 0 || limits_of(card, &limits) || begin()) return 0;
    int result = fits(card, &limits, bytes);
    end();
    return result;
}

int account_take(int card, uint64_t bytes) {
    struct card_limits limits;
    if (slot < 0 || limits_of(card, &limits) || begin()) return -1;
    int right = fits(card, &limits, bytes);
    if (right) {
        held[card] += bytes;
        if (!context[card]) context[card] = limits.context;
        post(card);
        note_peak(card, &limits);
    } else {
        usage->card[card].refused++;
    }
    end();
    return right ? 0 : -1;
}

void account_change(int card, uint64_t from, uint64_t to) {
    struct card_limits limits;
    if (from == to || slot < 0 || limits_of(card, &limits) || begin()) return;
    held[card] -= from < held[card] ? from : held[card];
    held[card] += to;
    post(card);
    note_peak(card, &limits);
    end();
}

void account_give(int card, uint64_t bytes) { account_change(card, bytes, 0); }

int account_state(int card, uint64_t *used, uint64_t *memory) {
    struct card_limits limits;
    if (slot < 0 || limits_of(card, &limits) || begin()) return -1;
    reap();
    *used = used_of(card, &limits);
    end();
    *memory = limits.memory;
    return 0;
}

void account_busy(int card, uint64_t busy_ns) {
    if (slot < 0) return;
    __atomic_fetch_add(&usage->process[slot].busy_ns[card], busy_ns, __ATOMIC_RELAXED);
}

void account_asked(int card, uint64_t at_ns) { __atomic_store_n(&usage->card[card].asked_ns, at_ns, __ATOMIC_RELAXED); }

static uint64_t take_off(uint64_t *debt, uint64_t most) {
    uint64_t before = __atomic_load_n(debt, __ATOMIC_RELAXED), pays;
    do pays = before < most ? before : most;
    while (!__atomic_compare_exchange_n(debt, &before, before - pays, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return pays;
}

uint64_t debt_pay(int card, uint64_t from_ns, uint64_t until_ns) {
    struct card_usage *at = &usage->card[card];
    uint64_t paid = __atomic_load_n(&at->paid_ns, __ATOMIC_ACQUIRE);
    if (paid != until_ns && __atomic_load_n(&at->debt_ns, __ATOMIC_RELAXED) &&
        __atomic_compare_exchange_n(&at->paid_ns, &paid, until_ns, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        uint64_t pays = take_off(&at->debt_ns, until_ns - from_ns);
        __atomic_store_n(&at->from_ns, from_ns + pays, __ATOMIC_RELEASE);
        if (from_ns + pays >= until_ns) __atomic_fetch_add(&at->missed, 1, __ATOMIC_RELAXED);
    }
    if (__atomic_load_n(&at->paid_ns, __ATOMIC_ACQUIRE) != until_ns) return from_ns;
    uint64_t start = __atomic_load_n(&at->from_ns, __ATOMIC_ACQUIRE);
    return start > from_ns ? (start < until_ns ? start : until_ns) : from_ns;
}

void debt_add(int card, uint64_t ns) { __atomic_fetch_add(&usage->card[card].debt_ns, ns, __ATOMIC_RELAXED); }
