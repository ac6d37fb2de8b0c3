/* Memory of stream-ordered allocations. A pool keeps what was freed, so it counts as what the driver has reserved for
 * it, or, where the driver does not say, as what is allocated from it. */
#ifndef MGPU_POOLS_H
#define MGPU_POOLS_H
#include "cuda.h"

/* The pool that allocations of a device come from; null: not known. */
handle pool_of(CUdevice device);
void pool_made(handle pool, const struct pool_properties *properties);
/* No more can be allocated from it; what is allocated still counts. */
void pool_destroyed(handle pool);
/* Count an allocation from a pool of the current device. 0: it fits. */
int pool_take(handle pool, uint64_t bytes);
/* Take back what pool_take counted: `bytes` are not, or no more, allocated from the pool. */
void pool_give(handle pool, uint64_t bytes);
/* Count what the driver has reserved by now. */
void pool_look(handle pool);
/* Have pools of a card return to it what they do not use. */
void pools_give_back(int card);
void pools_forked(void);
#endif
