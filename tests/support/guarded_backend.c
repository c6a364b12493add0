/* A back end whose memory nobody else can touch: see guarded_backend.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "guarded_backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_REGIONS = 4096, MAX_MAPS = 16, NONSENSE = 0xff /* four of them are a NaN */ };

/* What is handed out, [at, at + n_bytes), and the memory that it stands for. */
typedef struct region {
    unsigned char *at, *twin;
    size_t n_bytes;
} region;

typedef struct mapping {
    void *host; /* owned; NULL: free */
    unsigned char *twin;
    size_t n_bytes;
    skv_map_access access;
} mapping;

typedef struct guarded {
    skv_backend base; /* first */
    skv_backend *cpu; /* owned */
    region regions[MAX_REGIONS];
    size_t n_regions;
    mapping maps[MAX_MAPS];
    bool is_busy; /* something was computed, and nobody has waited for it */
    size_t n_waits;
} guarded;

/* The harness of alloc_fail.h counts the library's allocations, not these. */
void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);

skv_status __real_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err);
skv_status __wrap_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err);

_Noreturn static void die(const char *what)
{
    (void)fprintf(stderr, "guarded back end: %s\n", what);
    abort();
}

static void *take(size_t n_bytes)
{
    void *block = __real_malloc(n_bytes ? n_bytes : 1);
    if (!block) die("no memory");
    return block;
}

/* ---- memory ---- */

static region *find_region(const guarded *g, const void *at)
{
    const uintptr_t address = (uintptr_t)at;
    for (size_t i = g->n_regions; i-- > 0;) {
        const region *r = &g->regions[i];
        const uintptr_t first = (uintptr_t)r->at;
        if (address >= first && address - first < r->n_bytes) return (region *)(uintptr_t)r;
    }
    return NULL;
}

/* The memory that [at, at + n_bytes) stands for. */
static void *twin_of(const guarded *g, const void *at, size_t n_bytes)
{
    if (!at) return NULL;
    const region *r = find_region(g, at);
    if (!r) die("an address that it has not handed out");
    const size_t offset = (size_t)((const unsigned char *)at - r->at);
    if (n_bytes > r->n_bytes - offset) die("bytes beyond the end of an allocation");
    return r->twin + offset;
}

static float *floats(const guarded *g, const float *at)
{
    return twin_of(g, at, sizeof *at);
}

static skv_norm norm_of(const guarded *g, skv_norm norm)
{
    norm.weight = floats(g, norm.weight);
    return norm;
}

static void *guarded_alloc(skv_backend *base, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    const size_t n = n_bytes ? n_bytes : 1;
    if (g->n_regions == MAX_REGIONS) die("too many allocations");
    unsigned char *twin = g->cpu->alloc(g->cpu, n_bytes);
    if (!twin) return NULL;
    void *at = __real_mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("no addresses");
    g->regions[g->n_regions++] = (region){at, twin, n};
    return at;
}

static void guarded_release(skv_backend *base, void *block, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    region *r = find_region(g, block);
    if (!r || r->at != block) die("an allocation that it has not made is released");
    if (r->n_bytes != (n_bytes ? n_bytes : 1)) die("an allocation is released with another size");
    g->cpu->release(g->cpu, r->twin, n_bytes);
    (void)munmap(r->at, r->n_bytes);
    *r = g->regions[--g->n_regions];
}

static void guarded_put(skv_backend *base, void *dst, const void *host, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    g->cpu->put(g->cpu, twin_of(g, dst, n_bytes), host, n_bytes);
}

/* The host reads results. */
static void wait(guarded *g)
{
    g->n_waits += g->is_busy;
    g->is_busy = false;
}

static void guarded_get(skv_backend *base, void *host, const void *src, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    wait(g);
    g->cpu->get(g->cpu, host, twin_of(g, src, n_bytes), n_bytes);
}

static void guarded_copy(skv_backend *base, void *dst, const void *src, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    g->cpu->copy(g->cpu, twin_of(g, dst, n_bytes), twin_of(g, src, n_bytes), n_bytes);
}

static void *guarded_map(skv_backend *base, const void *at, size_t n_bytes, skv_map_access access)
{
    guarded *g = (guarded *)base;
    mapping *m = g->maps;
    if (access & SKV_MAP_READ) wait(g);
    while (m < g->maps + MAX_MAPS && m->host) m++;
    if (m == g->maps + MAX_MAPS) die("too much is mapped at a time");
    if (n_bytes == 0) at = NULL;
    *m = (mapping){take(n_bytes), twin_of(g, at, n_bytes), n_bytes, access};
    memset(m->host, NONSENSE, n_bytes);
    if (n_bytes && (access & SKV_MAP_READ)) memcpy(m->host, m->twin, n_bytes);
    return m->host;
}

static void guarded_unmap(skv_backend *base, const void *host)
{
    guarded *g = (guarded *)base;
    mapping *m = g->maps;
    while (m < g->maps + MAX_MAPS && (!host || m->host != host)) m++;
    if (m == g->maps + MAX_MAPS) die("what is not mapped is unmapped");
    if (m->n_bytes && (m->access & SKV_MAP_WRITE)) memcpy(m->twin, m->host, m->n_bytes);
    free(m->host);
    m->host = NULL;
}

/* The back end before an operation, which wants nothing mapped. */
static guarded *enter(skv_backend *base)
{
    guarded *g = (guarded *)base;
    for (size_t i = 0; i < MAX_MAPS; i++) {
        if (g->maps[i].host) die("an operation while memory is mapped");
    }
    g->is_busy = true;
    return g;
}

/* ---- weights ---- */

static skv_status guarded_reserve(skv_backend *base, const skv_backend_limits *limits,
                                  skv_error *err)
{
    skv_backend *cpu = ((guarded *)base)->cpu;
    return cpu->reserve(cpu, limits, err);
}

static skv_bytes guarded_reserve_bytes(const skv_backend *base, const skv_backend_limits *limits)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->reserve_bytes(cpu, limits);
}

static skv_bytes guarded_linear_bytes(const skv_backend *base, const skv_linear_spec *spec)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->linear_bytes(cpu, spec);
}

static skv_status guarded_linear_create(skv_backend *base, const skv_linear_spec *spec,
                                        skv_linear **out, skv_error *err)
{
    skv_backend *cpu = ((guarded *)base)->cpu;
    return cpu->linear_create(cpu, spec, out, err);
}

static void guarded_linear_free(skv_backend *base, skv_linear *w)
{
    skv_backend *cpu = ((guarded *)base)->cpu;
    cpu->linear_free(cpu, w);
}

/* ---- operations ---- */

static void guarded_linear(skv_backend *base, const skv_linear_args *args)
{
    guarded *g = enter(base);
    skv_linear_args a = *args;
    a.x = floats(g, a.x);
    a.y = floats(g, a.y);
    a.norm = norm_of(g, a.norm);
    g->cpu->linear(g->cpu, &a);
}

static void guarded_linear_groups(skv_backend *base, const skv_linear_args *args,
                                  const skv_linear_group *groups, size_t n_groups)
{
    guarded *g = enter(base);
    skv_linear_args a = *args;
    a.x = floats(g, a.x);
    a.y = floats(g, a.y);
    a.norm = norm_of(g, a.norm);
    g->cpu->linear_groups(g->cpu, &a, groups, n_groups);
}

static void guarded_mix(skv_backend *base, const skv_mix_args *args)
{
    guarded *g = enter(base);
    skv_mix_args a = *args;
    a.x = twin_of(g, a.x, a.n_rows * a.n * sizeof *a.x);
    a.y = floats(g, a.y);
    g->cpu->mix(g->cpu, &a);
}

static void guarded_rotate(skv_backend *base, const skv_rotate_args *args)
{
    guarded *g = enter(base);
    skv_rotate_args a = *args;
    a.q = floats(g, a.q);
    a.cos = floats(g, a.cos);
    a.sin = floats(g, a.sin);
    a.norm = norm_of(g, a.norm);
    g->cpu->rotate(g->cpu, &a);
}

/* A table of pages for the CPU; to be freed. */
static void **twin_table(const guarded *g, void *const *table, size_t n)
{
    void **twins = take(n * sizeof *twins);
    for (size_t i = 0; i < n; i++) twins[i] = twin_of(g, table[i], 1);
    return twins;
}

static void guarded_store(skv_backend *base, const skv_store_args *args)
{
    guarded *g = enter(base);
    skv_store_args a = *args;
    void ***tables = take(a.n_rows * sizeof *tables);
    for (size_t i = 0; i < a.n_rows; i++) {
        bool same = i > 0 && args->tables[i] == args->tables[i - 1];
        tables[i] = same ? tables[i - 1]
                         : twin_table(g, args->tables[i], a.n_heads * a.n_copies * a.table_stride);
    }
    a.tables = (void *const *const *)tables;
    a.k = floats(g, a.k);
    a.v = floats(g, a.v);
    a.cos = floats(g, a.cos);
    a.sin = floats(g, a.sin);
    a.norm = norm_of(g, a.norm);
    g->cpu->store(g->cpu, &a);
    for (size_t i = 0; i < a.n_rows; i++) {
        if (i == 0 || tables[i] != tables[i - 1]) free(tables[i]);
    }
    free(tables);
}

static void guarded_attention(skv_backend *base, const skv_attention_args *args)
{
    guarded *g = enter(base);
    skv_attention_args a = *args;
    skv_attention_item *items = take(a.n_items * sizeof *items);
    for (size_t i = 0; i < a.n_items; i++) {
        items[i] = args->items[i];
        items[i].table = twin_table(g, items[i].table, a.n_kv_heads * a.table_stride);
    }
    a.items = items;
    a.out = floats(g, a.out);
    a.q = floats(g, a.q);
    a.sinks = floats(g, a.sinks);
    g->cpu->attention(g->cpu, &a);
    for (size_t i = 0; i < a.n_items; i++) free((void *)(uintptr_t)items[i].table);
    free(items);
}

static void guarded_votes(skv_backend *base, const skv_votes_args *args)
{
    guarded *g = enter(base);
    skv_votes_args a = *args;
    void **table = twin_table(g, a.table, a.n_kv_heads * a.table_stride);
    a.table = table;
    a.q = floats(g, a.q);
    a.norms = floats(g, a.norms);
    a.sinks = floats(g, a.sinks);
    g->cpu->votes(g->cpu, &a);
    wait(g); /* the votes are the host's */
    free(table);
}

static void guarded_gather_kv(skv_backend *base, const skv_gather_kv_args *args)
{
    guarded *g = enter(base);
    skv_gather_kv_args a = *args;
    size_t n_pages = a.n ? a.rows[a.n - 1] / SKV_PAGE_ROWS + 1 : 0;
    void **from = twin_table(g, a.from, n_pages);
    a.from = from;
    a.to = twin_of(g, a.to, 1);
    g->cpu->gather_kv(g->cpu, &a);
    free(from);
}

static void guarded_norm(skv_backend *base, const skv_norm_args *args)
{
    guarded *g = enter(base);
    skv_norm_args a = *args;
    a.x = twin_of(g, a.x, a.n_rows * a.n * sizeof *a.x);
    a.y = twin_of(g, a.y, a.n_rows * a.n * sizeof *a.y);
    a.norm = norm_of(g, a.norm);
    g->cpu->norm(g->cpu, &a);
}

static void guarded_norm_add(skv_backend *base, const skv_norm_add_args *args)
{
    guarded *g = enter(base);
    skv_norm_add_args a = *args;
    a.x = twin_of(g, a.x, a.n_rows * a.n * sizeof *a.x);
    a.y = twin_of(g, a.y, a.n_rows * a.n * sizeof *a.y);
    a.norm = norm_of(g, a.norm);
    g->cpu->norm_add(g->cpu, &a);
}

static void guarded_glu(skv_backend *base, const skv_glu_args *args)
{
    guarded *g = enter(base);
    skv_glu_args a = *args;
    a.x = floats(g, a.x);
    a.y = floats(g, a.y);
    g->cpu->glu(g->cpu, &a);
}

static void guarded_embed_gate(skv_backend *base, const skv_embed_gate_args *args)
{
    guarded *g = enter(base);
    skv_embed_gate_args a = *args;
    a.gate = floats(g, a.gate);
    a.part = floats(g, a.part);
    a.token = floats(g, a.token);
    a.norm = norm_of(g, a.norm);
    g->cpu->embed_gate(g->cpu, &a);
}

static void guarded_gather(skv_backend *base, float *x, size_t n, const uint32_t *rows,
                           size_t n_rows)
{
    guarded *g = enter(base);
    g->cpu->gather(g->cpu, floats(g, x), n, rows, n_rows);
}

static void guarded_scale(skv_backend *base, float *x, size_t n, float factor)
{
    guarded *g = enter(base);
    g->cpu->scale(g->cpu, twin_of(g, x, n * sizeof *x), n, factor);
}

static void guarded_softcap(skv_backend *base, float *x, size_t n, float cap)
{
    guarded *g = enter(base);
    g->cpu->softcap(g->cpu, twin_of(g, x, n * sizeof *x), n, cap);
}

static size_t guarded_row_bytes(const skv_backend *base, skv_weight_type type, size_t K)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->row_bytes(cpu, type, K);
}

static void guarded_save_rows(skv_backend *base, skv_weight_type type, unsigned char *host,
                              const float *x, size_t n, size_t K)
{
    guarded *g = enter(base);
    g->cpu->save_rows(g->cpu, type, host, twin_of(g, x, n * K * sizeof *x), n, K);
    wait(g);
}

static void guarded_load_rows(skv_backend *base, skv_weight_type type, float *x,
                              const unsigned char *host, size_t n, size_t K)
{
    guarded *g = enter(base);
    g->cpu->load_rows(g->cpu, type, twin_of(g, x, n * K * sizeof *x), host, n, K);
}

/* ---- life ---- */

static void guarded_free(skv_backend *base)
{
    guarded *g = (guarded *)base;
    if (!g) return;
    if (g->n_regions > 0) die("freed before its memory was released");
    g->cpu->free(g->cpu);
    free(g);
}

bool guarded_backend_is(const skv_backend *be)
{
    return be->free == guarded_free;
}

size_t guarded_backend_waits(const skv_backend *be)
{
    return ((const guarded *)be)->n_waits;
}

skv_status __wrap_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err)
{
    skv_backend *cpu;
    SKV_TRY(__real_skv_backend_create(options, &cpu, err));
    guarded *g = __real_calloc(1, sizeof *g);
    if (!g) die("no memory");
    g->cpu = cpu;
    g->base = (skv_backend){
        .name = cpu->name,
        .level = cpu->level,
        .free = guarded_free,
        .alloc = guarded_alloc,
        .release = guarded_release,
        .put = guarded_put,
        .get = guarded_get,
        .copy = guarded_copy,
        .map = guarded_map,
        .unmap = guarded_unmap,
        .reserve = guarded_reserve,
        .reserve_bytes = guarded_reserve_bytes,
        .linear_bytes = guarded_linear_bytes,
        .linear_create = guarded_linear_create,
        .linear_free = guarded_linear_free,
        .linear = guarded_linear,
        .linear_groups = guarded_linear_groups,
        .mix = guarded_mix,
        .rotate = guarded_rotate,
        .store = guarded_store,
        .attention = guarded_attention,
        .votes = guarded_votes,
        .gather_kv = guarded_gather_kv,
        .norm = guarded_norm,
        .norm_add = guarded_norm_add,
        .glu = guarded_glu,
        .embed_gate = guarded_embed_gate,
        .gather = guarded_gather,
        .scale = guarded_scale,
        .softcap = guarded_softcap,
        .row_bytes = guarded_row_bytes,
        .save_rows = guarded_save_rows,
        .load_rows = guarded_load_rows,
    };
    *out = &g->base;
    return SKV_OK;
}
