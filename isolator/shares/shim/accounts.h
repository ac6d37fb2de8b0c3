/* What this process holds of each card, in its slot of `usage`. */
#ifndef MGPU_ACCOUNTS_H
#define MGPU_ACCOUNTS_H
#include <stdint.h>

#include "share.h"

/* Take a slot. 0: right; -1: all are taken by living processes. */
int accounts_join(void);
/* Whether this process has a slot. */
int accounts_ready(void);
/* Forget the slot: it is the parent's. To be called in the child of a fork, before accounts_join. */
void accounts_forget(void);

/* Count bytes of a card if they fit into the task's share. 0: they do. */
int account_take(int card, uint64_t bytes);
/* Whether so many more bytes would fit; counts nothing. */
int account_fits(int card, uint64_t bytes);
void account_give(int card, uint64_t bytes);
/* Count what the driver has taken or given back by itself: `from` bytes become `to`, fit or not. */
void account_change(int card, uint64_t from, uint64_t to);
/* Bytes that the task holds of a card, and its share. -1: none of its cards. */
int account_state(int card, uint64_t *used, uint64_t *memory);

void account_busy(int card, uint64_t busy_ns);
void account_asked(int card, uint64_t at_ns);
/* Pay debt of time from a window, of which [from, until) is left: once for all processes of the task.
 * When work may start in that window; `until`: not at all. */
uint64_t debt_pay(int card, uint64_t from_ns, uint64_t until_ns);
void debt_add(int card, uint64_t ns);
#endif
