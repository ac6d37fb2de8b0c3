/* What the parts of the test double of libcuda share: see stub_cuda.c. */
#ifndef STUB_H
#define STUB_H
#include <stdint.h>

#define API __attribute__((visibility("default")))
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
enum { OK = 0, INVALID = 1, OOM = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, BAD_PTX = 218,
       NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, NOT_SUPPORTED = 801 };
enum { CARDS = 4, PROCESSES = 64, ALLOC_NODE = 10, CHILD_NODE = 4 };

struct context { int device, primary, retained; };
struct event { int pending; uint64_t at; };
struct graph { int nodes; uint64_t us, bytes[32]; int device[32]; struct graph *below; };

extern __thread struct context *current;
extern int initialized, null;    /* whether cuInit was called; whether launches and events do nothing */
extern int broken;               /* the error that a kernel has left: all calls of this process answer it */
extern struct graph *capturing;

uint64_t now(void);
/* Put work of so many microseconds, or an event, into the queue of this process; wait until it is empty. */
void push(int device, uint64_t us, struct event *event);
void drain(void);
int is_pending(struct event *event);
#endif
