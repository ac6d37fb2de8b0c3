/* The task's two files, as its processes see them. */
#ifndef MGPU_SHARE_H
#define MGPU_SHARE_H
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "symbols.h"

extern struct usage *usage; /* null until share_open was right */
extern int usage_fd;        /* its file; another after a fork, or when the program has closed it */

/* Open both files in `share` beside the real library. 0: right; else why not is written to `why`.
 * `flags`: O_RDWR to keep accounts, O_RDONLY to show them. */
int share_open(const struct object *real, int flags, char *why, size_t size);
/* Open `usage` anew, for locks of this process' own. 0: right. */
int share_reopen(void);
/* Free what a thread of the parent held; to be called in the child of a fork. */
void share_forked(void);
/* Whether `usage_fd` still is that file: a program may close descriptors that it does not know. */
int share_is_open(void);

/* A card's limits as they were last written whole. 0: right; -1: not one of the task's cards. */
int limits_of(int card, struct card_limits *limits);
/* The number of the card with that UUID; -1: it is none of the task's. */
int card_with(const unsigned char uuid[16]);
/* Whether any card has windows. */
int has_windows(void);

/* Lock or unlock a byte of `usage`. 0: right. `wait`: until it can be had. */
int byte_lock(int at, int wait);
int byte_unlock(int at);
/* Whether a process has a slot and lives. */
int slot_lives(int slot);
/* Bytes that the task holds of a card; to be called with byte 0 locked, or for a look. */
uint64_t used_of(int card, const struct card_limits *limits);

uint64_t now_ns(void);
#endif
