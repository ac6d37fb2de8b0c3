/* What the host and the libraries in a task agree on. region.py is the host's side of the same two files.
 *
 *   limits  written by the host, mounted read-only into the task
 *   usage   written by the task's processes, read by the host
 *
 * Numbers are little endian. In `usage`, byte 0 is locked by who changes accounts, and byte 1 + i by the process that
 * has slot i, for as long as it has the file mapped: open file description locks, fcntl(2), which the kernel lets go at
 * its death and which know no pid namespace. */
#ifndef MGPU_LAYOUT_H
#define MGPU_LAYOUT_H
#include <stdint.h>

enum { MOST_CARDS = 16, MOST_PROCESSES = 256 };
#define LIMITS_MAGIC 0x4c53474du /* "MGSL" */
#define USAGE_MAGIC 0x5553474du  /* "MGSU" */
#define LAYOUT_VERSION 1u

struct card_limits {
    unsigned char uuid[16];
    uint64_t memory;      /* bytes; 0: nothing of this card */
    uint64_t context;     /* bytes that a process costs beside what it allocates */
    uint64_t unaccounted; /* bytes that the driver says the task holds beyond its own account */
    uint32_t period_us;   /* 0: work may start at any time */
    uint32_t start_us;    /* the window opens so long after the period begins, on CLOCK_MONOTONIC */
    uint32_t length_us;   /* and lasts so long; it may go over the period's end */
    uint32_t reserved[3];
};

struct limits {
    uint32_t magic, version;
    uint64_t generation; /* odd: being written */
    uint32_t windows;    /* cards that have a period: 0 spares every launch a look */
    uint32_t reserved[11];
    struct card_limits card[MOST_CARDS];
};

struct card_usage {
    uint64_t refused;  /* allocations that did not fit */
    uint64_t missed;   /* windows that passed while work that ran over was paid for */
    uint64_t asked_ns; /* CLOCK_MONOTONIC of the last wish to start work */
    uint64_t peak;     /* most bytes held at once */
    uint64_t debt_ns;  /* time on the card beyond the windows, still to be paid for */
    uint64_t paid_ns;  /* the end of the window from which debt was paid last */
    uint64_t from_ns;  /* when what was paid for is over: no process starts work before */
    uint64_t reserved;
};

struct process_usage {
    int32_t pid; /* in the task's own pid namespace; 0: the slot is free */
    uint32_t reserved;
    uint64_t held[MOST_CARDS];    /* bytes allocated */
    uint64_t context[MOST_CARDS]; /* bytes counted for its context: from its first allocation on the card on */
    uint64_t busy_ns[MOST_CARDS]; /* time on the card, measured in windows */
};

struct usage {
    uint32_t magic, version;
    uint32_t slots; /* slots that were ever taken: those behind them need no look */
    uint32_t reserved[13];
    struct card_usage card[MOST_CARDS];
    struct process_usage process[MOST_PROCESSES];
};

_Static_assert(sizeof(struct limits) == 1088, "as region.py has it");
_Static_assert(sizeof(struct usage) == 101440, "as region.py has it");
#endif
