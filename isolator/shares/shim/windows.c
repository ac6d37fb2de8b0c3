/* See windows.h. Cooperating tasks need not talk to each other: all read the same clock. */
#define _GNU_SOURCE
#include "windows.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "accounts.h"
#include "process.h"

#define US UINT64_C(1000)
static const uint64_t BATCH = 2000 * US;           /* of work between two measurements */
static const uint64_t POLL = 50 * US;              /* between two looks at an event */
static const uint64_t LONGEST = 10 * 1000000 * US; /* wait for an event: what it waits for may wait for us */

struct batch {
    handle begin, end; /* events */
    int open, launches;
    uint64_t opened; /* when its first launch was let through */
};
struct pace {
    pthread_mutex_t lock;
    handle context; /* that the events are of */
    struct batch batch[2];
    int current;
    uint64_t mean;   /* of a launch, ns; 0: not known yet */
    uint64_t closes; /* the window that the open batches are in */
    uint64_t ends;   /* when the card was done with what was measured last */
};
static struct pace paces[MOST_CARDS] = {[0 ... MOST_CARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

struct window {
    uint64_t opens, closes;
};

static uint64_t larger(uint64_t one, uint64_t other) { return one > other ? one : other; }

/* The window that a time is in, or the next one. */
static struct window window_at(const struct card_limits *limits, uint64_t now) {
    uint64_t period = limits->period_us * US, phase = (now + period - limits->start_us * US % period) % period;
    uint64_t opens = now - phase;
    if (phase >= limits->length_us * US) opens += period;
    return (struct window){opens, opens + limits->length_us * US};
}

static void sleep_until(uint64_t ns) {
    struct timespec at = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* Wait for a window with room for a launch; when it closes. */
static uint64_t wait_for_window(int card, uint64_t mean) {
    struct card_limits limits;
    for (;;) {
        if (limits_of(card, &limits) || limits.length_us >= limits.period_us) return UINT64_MAX;
        uint64_t now = now_ns();
        struct window window = window_at(&limits, now);
        uint64_t from = larger(now, window.opens), start = debt_pay(card, from, window.closes);
        int too_long = mean > limits.length_us * US; /* for any window: it pays afterwards */
        if (start >= window.closes || (start + mean / 2 >= window.closes && !too_long))
            sleep_until(window.closes);
        else if (start > now)
            sleep_until(start);
        else
            return window.closes;
    }
}

static void drop_events(struct pace *pace) {
    memset(pace->batch, 0, sizeof pace->batch);
    pace->context = NULL;
    pace->current = 0;
}

static int has_events(struct pace *pace) {
    handle context = current_context();
    if (pace->context == context && pace->batch[0].begin) return 1;
    drop_events(pace); /* a context that comes and goes with every launch leaves its events behind */
    for (int i = 0; i < 2; i++)
        if (driver.cuEventCreate(&pace->batch[i].begin, 0) || driver.cuEventCreate(&pace->batch[i].end, 0)) {
            drop_events(pace);
            return 0;
        }
    pace->context = context;
    return 1;
}

static void record(handle event, handle stream, int own) {
    if (own && driver.cuEventRecord_ptsz)
        driver.cuEventRecord_ptsz(event, stream);
    else
        driver.cuEventRecord(event, stream);
}

static void wait_for(handle event) {
    uint64_t until = now_ns() + LONGEST;
    for (uint64_t now = now_ns(); driver.cuEventQuery(event) == CUDA_ERROR_NOT_READY && now < until; now = now_ns())
        sleep_until(now + POLL);
}

/* Measure a batch once the card is done with it. */
static void settle(int card, struct pace *pace, struct batch *batch) {
    float ms = 0;
    if (!batch->open) return;
    batch->open = 0;
    wait_for(batch->end);
    if (!batch->launches || driver.cuEventElapsedTime(&ms, batch->begin, batch->end) || !(ms >= 0)) return;
    uint64_t took = (uint64_t)((double)ms * 1e6), each = took / (uint64_t)batch->launches;
    pace->mean = pace->mean ? (pace->mean * 4 + each) / 5 : larger(each, 1);
    pace->ends = larger(pace->ends, batch->opened) + took;
    account_busy(card, took);
}

static struct batch *other(struct pace *pace) { return &pace->batch[!pace->current]; }

/* Wait until the card is done with all that was let through; what it took beyond the window is debt. */
static void drain(int card, struct pace *pace) {
    settle(card, pace, other(pace));
    settle(card, pace, &pace->batch[pace->current]);
    if (pace->ends > pace->closes) debt_add(card, pace->ends - pace->closes);
    pace->ends = 0;
}

static uint64_t outstanding(const struct pace *pace) {
    uint64_t launches = 1;
    for (int i = 0; i < 2; i++)
        if (pace->batch[i].open) launches += (uint64_t)pace->batch[i].launches;
    return launches * pace->mean;
}

static void open_batch(struct pace *pace, handle stream, int own) {
    struct batch *batch = &pace->batch[pace->current];
    batch->open = 1;
    batch->launches = 0;
    batch->opened = now_ns();
    record(batch->begin, stream, own);
}

/* The host may have changed the window since. */
static void follow(struct pace *pace, const struct card_limits *limits, uint64_t now) {
    if (now >= pace->closes) return;
    struct window window = window_at(limits, now);
    if (limits->length_us >= limits->period_us)
        pace->closes = UINT64_MAX;
    else
        pace->closes = window.opens <= now ? window.closes : now;
}

/* Let one launch through. Never more than two batches are ahead of the card. */
static void pass(int card, struct pace *pace, uint64_t now, handle stream, int own) {
    struct batch *batch = &pace->batch[pace->current];
    if (batch->open && pace->closes != UINT64_MAX && now + outstanding(pace) > pace->closes) {
        drain(card, pace);
    } else if (batch->open && (!pace->mean || pace->mean * (uint64_t)batch->launches >= BATCH)) {
        settle(card, pace, other(pace));
        pace->current = !pace->current;
        open_batch(pace, stream, own);
        return;
    }
    if (batch->open) return;
    pace->closes = wait_for_window(card, pace->mean);
    open_batch(pace, stream, own);
}

static void exchange_mode(int *mode) {
    if (driver.cuThreadExchangeStreamCaptureMode) driver.cuThreadExchangeStreamCaptureMode(mode);
}

int window_enter(handle stream, int own) {
    struct card_limits limits;
    if (inside || !started() || !has_windows()) return ANY_TIME;
    int card = current_card();
    if (limits_of(card, &limits) || !limits.period_us || is_captured(stream, own)) return ANY_TIME;
    struct pace *pace = &paces[card];
    int mode = CAPTURE_MODE_RELAXED; /* events are allowed although another thread captures */
    uint64_t now = now_ns();
    account_asked(card, now);
    exchange_mode(&mode);
    pthread_mutex_lock(&pace->lock);
    follow(pace, &limits, now);
    if (has_events(pace))
        pass(card, pace, now, stream, own);
    else
        wait_for_window(card, 0);
    exchange_mode(&mode);
    return card;
}

void window_leave(int entered, handle stream, int own) {
    if (entered == ANY_TIME) return;
    struct pace *pace = &paces[entered];
    struct batch *batch = &pace->batch[pace->current];
    if (batch->open) {
        batch->launches++;
        record(batch->end, stream, own);
    }
    pthread_mutex_unlock(&pace->lock);
}

void windows_forget(handle context) {
    for (int card = 0; card < MOST_CARDS; card++) {
        pthread_mutex_lock(&paces[card].lock);
        if (paces[card].context == context) drop_events(&paces[card]);
        pthread_mutex_unlock(&paces[card].lock);
    }
}

void windows_forked(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    for (int card = 0; card < MOST_CARDS; card++) paces[card] = (struct pace){.lock = fresh};
}
