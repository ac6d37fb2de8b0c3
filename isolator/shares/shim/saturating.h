/* Sums and products of sizes, which programs choose: what is too large for a number stays the largest. */
#ifndef MGPU_SATURATING_H
#define MGPU_SATURATING_H
#include <stdint.h>

static inline uint64_t plus(uint64_t one, uint64_t other) {
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}
static inline uint64_t times(uint64_t one, uint64_t other) {
    return other && one > UINT64_MAX / other ? UINT64_MAX : one * other;
}
#endif
