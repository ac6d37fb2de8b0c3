/* Room for an allocation: counted before the driver is asked, given back if it refuses. */
#ifndef MGPU_ROOM_H
#define MGPU_ROOM_H
#include <stdint.h>

/* Count bytes of a card. What lies unused in pools and graphs of this process is given back first, if that makes room.
 * 0: counted; -1: they do not fit, or it is none of the task's cards. */
int room_take(int card, uint64_t bytes);
#endif
