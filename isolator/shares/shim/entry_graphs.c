/* Graphs: what they allocate, and when they run. */
#include "graphs.h"
#include "process.h"
#include "windows.h"

CUresult cuGraphAddMemAllocNode(handle *to, handle graph, const handle *after, size_t count, struct alloc_node *node) {
    CUresult result;
    NEEDS(cuGraphAddMemAllocNode);
    if (!inside && graph_allocates(card_at(&node->pool.location), node->bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CALL(result, cuGraphAddMemAllocNode, to, graph, after, count, node);
    return result;
}

static int does_not_fit(const struct node *node) {
    const struct alloc_node *alloc = &node->of.alloc;
    return !inside && node->type == NODE_MEM_ALLOC && graph_allocates(card_at(&alloc->pool.location), alloc->bytes);
}

#define ADD_NODE(name, ...)                                                                                            \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    if (does_not_fit(node)) return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    CALL(result, name, to, graph, after, __VA_ARGS__);                                                                 \
    return result

CUresult cuGraphAddNode(handle *to, handle graph, const handle *after, size_t count, struct node *node) {
    ADD_NODE(cuGraphAddNode, count, node);
}
CUresult cuGraphAddNode_v2(handle *to, handle graph, const handle *after, const void *edges, size_t count,
                           struct node *node) {
    ADD_NODE(cuGraphAddNode_v2, edges, count, node);
}
CUresult cuGraphAddNode_v3(handle *to, handle graph, const handle *after, const void *edges, size_t count,
                           struct node *node) {
    ADD_NODE(cuGraphAddNode_v3, edges, count, node);
}

#define INSTANTIATE(name, ...)                                                                                         \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    CALL(result, name, to, graph, __VA_ARGS__);                                                                        \
    if (!result && !inside) graph_instantiated(*to, graph);                                                            \
    return result

CUresult cuGraphInstantiate(handle *to, handle graph, handle *wrong, char *log, size_t size) {
    INSTANTIATE(cuGraphInstantiate, wrong, log, size);
}
CUresult cuGraphInstantiate_v2(handle *to, handle graph, handle *wrong, char *log, size_t size) {
    INSTANTIATE(cuGraphInstantiate_v2, wrong, log, size);
}
CUresult cuGraphInstantiateWithFlags(handle *to, handle graph, uint64_t flags) {
    INSTANTIATE(cuGraphInstantiateWithFlags, flags);
}

/* A graph that is to be uploaded at once takes its memory then: it is made first, and uploaded if that fits. */
#define INSTANTIATE_WITH(name, upload)                                                                                 \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    if (inside || !how) return driver.name(to, graph, how);                                                            \
    uint64_t flags = how->flags;                                                                                       \
    how->flags &= ~(uint64_t)INSTANTIATE_UPLOAD;                                                                       \
    CALL(result, name, to, graph, how);                                                                                \
    how->flags = flags;                                                                                                \
    if (result) return result;                                                                                         \
    graph_instantiated(*to, graph);                                                                                    \
    if (flags & INSTANTIATE_UPLOAD && (result = upload(*to, how->stream))) cuGraphExecDestroy(*to);                    \
    return result

CUresult cuGraphInstantiateWithParams(handle *to, handle graph, struct instantiation *how) {
    INSTANTIATE_WITH(cuGraphInstantiateWithParams, cuGraphUpload);
}
CUresult cuGraphInstantiateWithParams_ptsz(handle *to, handle graph, struct instantiation *how) {
    INSTANTIATE_WITH(cuGraphInstantiateWithParams_ptsz, cuGraphUpload_ptsz);
}

CUresult cuGraphExecDestroy(handle graph) {
    CUresult result;
    NEEDS(cuGraphExecDestroy);
    if (inside) return driver.cuGraphExecDestroy(graph);
    graph_forget(graph);
    CALL(result, cuGraphExecDestroy, graph);
    graphs_look_at_all();
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result;
    NEEDS(cuDeviceGraphMemTrim);
    CALL(result, cuDeviceGraphMemTrim, device);
    if (!inside) graphs_trimmed(card_of(device));
    return result;
}

#define UPLOAD(name)                                                                                                   \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    if (inside) return driver.name(graph, stream);                                                                     \
    if (graph_take(graph)) return CUDA_ERROR_OUT_OF_MEMORY;                                                            \
    CALL(result, name, graph, stream);                                                                                 \
    graph_look(graph);                                                                                                 \
    return result

CUresult cuGraphUpload(handle graph, handle stream) { UPLOAD(cuGraphUpload); }
CUresult cuGraphUpload_ptsz(handle graph, handle stream) { UPLOAD(cuGraphUpload_ptsz); }

#define LAUNCH(name, own)                                                                                              \
    CUresult result;                                                                                                   \
    NEEDS(name);                                                                                                       \
    if (inside) return driver.name(graph, stream);                                                                     \
    if (graph_take(graph)) return CUDA_ERROR_OUT_OF_MEMORY;                                                            \
    int entered = window_enter(stream, own);                                                                           \
    CALL(result, name, graph, stream);                                                                                 \
    window_leave(entered, stream, own);                                                                                \
    graph_look(graph);                                                                                                 \
    return result

CUresult cuGraphLaunch(handle graph, handle stream) { LAUNCH(cuGraphLaunch, 0); }
CUresult cuGraphLaunch_ptsz(handle graph, handle stream) { LAUNCH(cuGraphLaunch_ptsz, 1); }
