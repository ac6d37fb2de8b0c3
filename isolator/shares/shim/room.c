/* See room.h. */
#include "room.h"

#include "accounts.h"
#include "graphs.h"
#include "pools.h"

int room_take(int card, uint64_t bytes) {
    if (card < 0) return -1;
    if (!account_fits(card, bytes)) {
        pools_give_back(card);
        graphs_give_back(card);
    }
    return account_take(card, bytes);
}
