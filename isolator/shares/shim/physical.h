/* Physical memory of the card (cuMemCreate) and the addresses that it is mapped at. It lives as long as a handle or a
 * mapping of it does, so it counts as long. Memory of another process that is imported counts for the importer, too,
 * once it is mapped: the exporter may let go of it first. */
#ifndef MGPU_PHYSICAL_H
#define MGPU_PHYSICAL_H
#include "cuda.h"

/* The driver uses numbers of handles again: between what it is asked and what is noted of its answer, nobody else asks
 * it for one. */
void physical_begin(void);
void physical_end(void);
/* Note what was made: `bytes` are counted already. */
void physical_made(uint64_t memory, int card, uint64_t bytes);
void physical_imported(uint64_t memory);
/* A handle was released, or another one of memory that is mapped at `address` was given. */
void physical_released(uint64_t memory);
void physical_retained(uint64_t memory, CUdeviceptr address);
/* Count imported memory that is about to be mapped. 0: it fits. */
int physical_map(uint64_t memory, uint64_t end);
void physical_mapped(uint64_t memory, CUdeviceptr at, uint64_t bytes);
void physical_unmapped(CUdeviceptr at, uint64_t bytes);
/* To be called in the child of a fork. */
void physical_forked(void);
#endif
