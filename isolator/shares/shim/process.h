/* What is known to this process: the driver's functions, its devices as cards of the task, its share. */
#ifndef MGPU_PROCESS_H
#define MGPU_PROCESS_H
#include "cuda.h"

/* Find the driver's functions and open the share; once. Whether the share is open. */
int started(void);
/* Why the share is not open. */
const char *start_problem(void);
/* The card of a device, or of the current context; -1: none of the task's. */
int card_of(CUdevice device);
int current_card(void);
/* The card that memory at a location is on, ON_HOST: the host's. What is not known counts for the current one. */
enum { ON_HOST = -2 };
int card_at(const struct location *location);
/* The current context; null: there is none. */
handle current_context(void);
/* Whether a stream is captured into a graph: then nothing runs, and nothing is allocated. `own`: the default stream is
 * the thread's own. */
int is_captured(handle stream, int own);
/* The device of a card, once it was asked for by card_of; -1: it was not. */
CUdevice device_of(int card);
/* The function that stands for a function of the driver's; itself, if none does. */
void *in_place_of(void *function);

/* Not 0 while the driver works for this thread: what it calls of its own exports is not counted again. */
extern __thread int inside __attribute__((tls_model("initial-exec")));

/* A name that this driver does not have: a program that finds it in ours must not fall into nothing. */
#define NEEDS(name)                                                                                                    \
    do {                                                                                                               \
        started();                                                                                                     \
        if (!driver.name) return CUDA_ERROR_NOT_SUPPORTED;                                                             \
    } while (0)
/* Call the driver. */
#define CALL(result, name, ...)                                                                                        \
    do {                                                                                                               \
        inside++;                                                                                                      \
        (result) = driver.name(__VA_ARGS__);                                                                           \
        inside--;                                                                                                      \
    } while (0)
#endif
