/* The task's two files, as its processes see them. */
#ifndef MGPU_SHARE_H
#define MGPU_SHARE_H
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "symbols.h"

extern struct usage *usage; /* null until share_open was right */

/* Open both files in `region` beside the real library. 0: right; else why not is written to `why`.
 * `flags`: O_RDWR to keep accounts, O_RDONLY to show them. */
int share_open(const struct object *real, int flags, char *why, size_t size);
/* In the child of a fork: let go of what is the parent's, and map `usage` anew. 0: right. */
int share_forked(void);
/* In the child of a fork amid share_open: let go of what the parent has opened. */
void share_closed(void);
/* Open the file of locks anew if the program has closed it: it may close what it does not know. 0: right. */
int share_reopened(void);

/* A card's limits as they were last written whole. 0: right; -1: not one of the task's cards. */
int limits_of(int card, struct card_limits *limits);
/* The number of the card with that UUID; -1: it is none of the task's. */
int card_with(const unsigned char uuid[16]);
/* Whether any card has windows. */
int has_windows(void);

/* Lock accounts against other processes, waiting for them, and unlock them. */
void accounts_lock(void);
void accounts_unlock(void);
/* Lock a slot for as long as `usage` is mapped: until this process ends, whatever it closes. 0: right. */
int slot_lock(int slot);
/* To be called when a slot is locked. */
void slot_locked(void);
/* Whether a process has a slot and lives. */
int slot_lives(int slot);
/* Bytes that the task holds of a card; to be called with byte 0 locked, or for a look. */
uint64_t used_of(int card, const struct card_limits *limits);
/* Of processes that live: for who shows accounts, and does not clear those of the dead. */
uint64_t used_by_living(int card, const struct card_limits *limits);

uint64_t now_ns(void);
#endif
