#include "backend/cuda/cuda_graphs.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* FEWEST: a list of fewer launches goes one by one. */
enum { LIST_BYTES = 512 * 1024, FEWEST = 4, PRODUCT = SKV_CUDA_KERNEL_COUNT };

/* A launch in a list; its arguments follow, in whole groups of 8 bytes. */
typedef struct listed {
    uint32_t kernel; /* SKV_CUDA_.., or PRODUCT */
    uint32_t n_bytes;
    skv_cuda_grid grid;
} listed;

typedef struct listed_product {
    skv_cuda_product_shape shape;
    skv_cuda_operands operands;
} listed_product;

/* ---- arguments without padding: with compilers that know it, lists that are equal look so ---- */

#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(a) __builtin_clear_padding(a)
#endif
#endif
#ifndef CLEAR_PADDING
#define CLEAR_PADDING(a) ((void)(a))
#endif

#define X(name, args, n_threads)                                                                   \
    static void clear_##name(void *at)                                                             \
    {                                                                                              \
        CLEAR_PADDING((args *)at);                                                                 \
    }
SKV_CUDA_KERNELS(X)
X(product, listed_product, 0)
#undef X

static const struct {
    void (*clear)(void *args);
    uint32_t n_bytes;
} arguments[SKV_CUDA_KERNEL_COUNT + 1] = {
#define X(name, args, n_threads) {clear_##name, sizeof(args)},
    SKV_CUDA_KERNELS(X) X(product, listed_product, 0)
#undef X
};

/* ---- life ---- */

/* A graph takes device memory of the driver's choice, for each launch about as much as its
 * arguments. */
skv_bytes skv_cuda_graphs_bytes(void)
{
    return (skv_bytes){.device = (size_t)SKV_CUDA_RECORDINGS * LIST_BYTES,
                       .host = sizeof(skv_cuda_graphs) +
                               (size_t)(SKV_CUDA_RECORDINGS + 1) * LIST_BYTES};
}

skv_status skv_cuda_graphs_open(skv_cuda_device *d, skv_error *err)
{
    const size_t n_bytes = (size_t)(SKV_CUDA_RECORDINGS + 1) * LIST_BYTES;
    skv_cuda_graphs *g = skv_alloc_zero(1, sizeof *g);
    unsigned char *lists = g ? skv_map_zero(n_bytes) : NULL;
    if (!lists) {
        skv_free(g);
        return skv_fail(err, SKV_MEMORY, "recorded launches: no memory for %zu bytes", n_bytes);
    }
    g->lists = g->list = lists;
    for (size_t i = 0; i < SKV_CUDA_RECORDINGS; i++) {
        g->recordings[i].list = lists + (i + 1) * LIST_BYTES;
    }
    d->graphs = g;
    return SKV_OK;
}

static void forget(skv_cuda_device *d, skv_cuda_recording *r)
{
    if (r->at) (void)d->api.recording_delete(r->at);
    r->at = NULL;
}

void skv_cuda_graphs_close(skv_cuda_device *d)
{
    skv_cuda_graphs *g = d->graphs;
    if (!g) return;
    if (d->api.context_set(d->context) == 0) (void)d->api.stream_wait(d->stream);
    for (size_t i = 0; i < SKV_CUDA_RECORDINGS; i++) forget(d, &g->recordings[i]);
    skv_unmap(g->lists, (size_t)(SKV_CUDA_RECORDINGS + 1) * LIST_BYTES);
    skv_free(g);
    d->graphs = NULL;
}

/* ---- the list ---- */

void skv_cuda_graphs_begin(skv_cuda_device *d)
{
    skv_cuda_graphs *g = d->graphs;
    if (!g) return;
    skv_cuda_graphs_end(d);
    g->listing = true;
    g->n_bytes = g->n_launches = 0;
    g->n_lists++;
}

uint64_t skv_cuda_graphs_number(const skv_cuda_device *d)
{
    return d->graphs && d->graphs->listing ? d->graphs->n_lists : 0;
}

static bool add(skv_cuda_device *d, listed l, const void *args)
{
    skv_cuda_graphs *g = d->graphs;
    static_assert(sizeof l % 8 == 0, "arguments are aligned");
    if (!g || !g->listing) return false;
    const size_t n_bytes = skv_round_up(l.n_bytes, 8);
    if (g->n_bytes + sizeof l + n_bytes > LIST_BYTES) {
        skv_cuda_graphs_end(d);
        return false;
    }
    unsigned char *at = g->list + g->n_bytes;
    memcpy(at, &l, sizeof l);
    memset(at + sizeof l + n_bytes - 8, 0, 8);
    memcpy(at + sizeof l, args, l.n_bytes);
    arguments[l.kernel].clear(at + sizeof l);
    g->n_bytes += sizeof l + n_bytes;
    g->n_launches++;
    return true;
}

void skv_cuda_graphs_launch(skv_cuda_device *d, skv_cuda_kernel kernel, skv_cuda_grid grid,
                            const void *args)
{
    if (d->failed != SKV_OK) return;
    if (add(d, (listed){(uint32_t)kernel, arguments[kernel].n_bytes, grid}, args)) return;
    if (skv_cuda_is_ready(d)) skv_cuda_issue(d, kernel, grid, args);
}

bool skv_cuda_graphs_multiply(skv_cuda_device *d, const skv_cuda_product_shape *shape,
                              const skv_cuda_operands *operands)
{
    const listed_product p = {*shape, *operands};
    return add(d, (listed){.kernel = PRODUCT, .n_bytes = sizeof p}, &p);
}

/* Puts the list into the stream, one by one. */
static void issue(skv_cuda_device *d, const skv_cuda_graphs *g)
{
    for (size_t at = 0; at < g->n_bytes && d->failed == SKV_OK;) {
        const unsigned char *args = g->list + at + sizeof(listed);
        listed l;
        memcpy(&l, g->list + at, sizeof l);
        if (l.kernel < PRODUCT) {
            skv_cuda_issue(d, (skv_cuda_kernel)l.kernel, l.grid, args);
        } else {
            const listed_product *p = (const void *)args;
            d->failed = skv_cuda_multiply(&d->blas, p->shape, &p->operands, d->stream, &d->error);
        }
        at += sizeof l + skv_round_up(l.n_bytes, 8);
    }
}

/* ---- recordings ---- */

static skv_cuda_recording *find(skv_cuda_graphs *g)
{
    for (size_t i = 0; i < SKV_CUDA_RECORDINGS; i++) {
        skv_cuda_recording *r = &g->recordings[i];
        if (!r->at || r->n_bytes != g->n_bytes) continue;
        if (memcmp(r->list, g->list, g->n_bytes) == 0) return r;
    }
    return NULL;
}

static uint64_t hash_of(const skv_cuda_graphs *g)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i < g->n_bytes; i += sizeof word) {
        memcpy(&word, g->list + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

/* Whether such a list went one by one not long ago; else it is noted. */
static bool was_seen(skv_cuda_graphs *g)
{
    const uint64_t hash = hash_of(g);
    for (size_t i = 0; i < SKV_CUDA_LISTS_SEEN && i < g->n_seen; i++) {
        if (g->seen[i] == hash) return true;
    }
    g->seen[g->n_seen++ % SKV_CUDA_LISTS_SEEN] = hash;
    return false;
}

/* A free place, or that of the recording that was not used for the longest time. */
static skv_cuda_recording *take_place(skv_cuda_device *d, skv_cuda_graphs *g)
{
    skv_cuda_recording *oldest = &g->recordings[0];
    for (size_t i = 0; i < SKV_CUDA_RECORDINGS; i++) {
        skv_cuda_recording *r = &g->recordings[i];
        if (!r->at) return r;
        if (r->last_used < oldest->last_used) oldest = r;
    }
    (void)d->api.stream_wait(d->stream);
    forget(d, oldest);
    return oldest;
}

/* A driver that cannot record is asked once. What the list itself has done wrong shows when it goes
 * one by one. */
static skv_cuda_recording *record(skv_cuda_device *d, skv_cuda_graphs *g)
{
    const skv_cuda_api *api = &d->api;
    skv_cuda_recording *r = take_place(d, g);
    skv_cu_graph graph = NULL;
    bool good = api->capture_begin(d->stream, SKV_CU_CAPTURE_RELAXED) == 0;
    if (good) {
        issue(d, g);
        good = api->capture_end(d->stream, &graph) == 0 && d->failed == SKV_OK && graph;
        d->failed = SKV_OK;
    }
    good = good && api->recording_make(&r->at, graph, 0) == 0;
    if (graph) (void)api->graph_delete(graph);
    if (!good) {
        r->at = NULL;
        g->off = true;
        return NULL;
    }
    unsigned char *list = r->list;
    r->list = g->list;
    r->n_bytes = g->n_bytes;
    g->list = list;
    g->n_recorded++;
    return r;
}

static bool play(skv_cuda_device *d, skv_cuda_graphs *g)
{
    if (g->off || g->n_launches < FEWEST) return false;
    skv_cuda_recording *r = find(g);
    if (!r && was_seen(g)) r = record(d, g);
    if (!r) return false;
    r->last_used = ++g->n_ends;
    g->n_played++;
    d->failed = skv_cuda_check(&d->api, d->api.recording_launch(r->at, d->stream), "cuGraphLaunch",
                               &d->error);
    return true;
}

void skv_cuda_graphs_end(skv_cuda_device *d)
{
    skv_cuda_graphs *g = d->graphs;
    if (!g || !g->listing) return;
    g->listing = false;
    if (d->failed != SKV_OK || d->api.context_set(d->context) != 0) return;
    if (!play(d, g)) issue(d, g);
}
