/* Memory that graphs allocate when they run: it comes from a pool of the device that the driver keeps for graphs. */
#ifndef MGPU_GRAPHS_H
#define MGPU_GRAPHS_H
#include "cuda.h"

/* An allocation becomes part of a graph. 0: it would fit by itself, or is of the host's memory. */
int graph_allocates(int card, uint64_t bytes);
/* Note what an executable graph allocates. */
void graph_instantiated(handle executable, handle graph);
/* It is about to be destroyed: as soon as it is, another may be given its number. */
void graph_forget(handle executable);
/* Count what running it may make the driver take. 0: it fits. */
int graph_take(handle executable);
/* Count what the driver has taken by now. */
void graph_look(handle executable);
/* Have the driver give back what graphs do not use of a card. */
void graphs_give_back(int card);
/* Count what the driver has taken for graphs of a card; after it has given back what they do not use. */
void graphs_look(int card);
void graphs_look_at_all(void);
void graphs_trimmed(int card);
/* To be called in the child of a fork. */
void graphs_forked(void);
#endif
