/* When work may start: in the task's window of each period. Time on the card is measured by events round batches of
 * launches; what ran beyond the window is debt, and is paid for from later windows. */
#ifndef MGPU_WINDOWS_H
#define MGPU_WINDOWS_H
#include "cuda.h"

enum { ANY_TIME = -1 };

/* Wait until work may start on a stream of the current context. `own`: the default stream is the thread's own.
 * What it returns belongs to window_leave, which must follow at once. */
int window_enter(handle stream, int own);
void window_leave(int entered, handle stream, int own);
/* A context goes, with its events. */
void windows_forget(handle context);
void windows_forked(void);
#endif
