/* A back end whose memory nobody else can touch: see guarded_backend.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "guarded_backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MAX_REGIONS = 4096,
    MAX_MAPS = 16,
    NONSENSE = 0xff, /* four of them are a NaN */
    PADDING = 3      /* floats between mapped rows that do not stand close together */
};

/* Pages that are handed out, [at, at + n_bytes), and the memory that they stand for. */
typedef struct region {
    unsigned char *at, *twin;
    size_t n_bytes;
} region;

typedef struct guarded guarded;

struct skv_area {
    const guarded *of;
    skv_area *inner;
    skv_area_spec spec;
    size_t n;         /* elements */
    unsigned n_maps;  /* that it has now */
    size_t n_created; /* together with it, if it is the first of them */
};

struct skv_linear {
    skv_linear *inner;
    size_t n_parts, K;
    bool paired;
    size_t n_rows[]; /* [n_parts] */
};

struct skv_states {
    const guarded *of;
    skv_states *inner;
    size_t n_states;
    skv_state_layer layers[]; /* [n_layers] */
};

typedef struct mapping {
    float *host; /* owned; NULL: free */
    skv_rows rows;
    size_t n_rows, n, ld;
    skv_map_access access;
} mapping;

struct guarded {
    skv_backend base; /* first */
    skv_backend *cpu; /* owned */
    region regions[MAX_REGIONS];
    size_t n_regions;
    size_t n_areas, n_states;
    mapping maps[MAX_MAPS];
    bool is_busy; /* something was computed, and nobody has waited for it */
    size_t n_waits;
};

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

/* The host reads results. */
static void wait(guarded *g)
{
    g->n_waits += g->is_busy;
    g->is_busy = false;
}

/* The back end before an operation. */
static guarded *enter(skv_backend *base)
{
    guarded *g = (guarded *)base;
    g->is_busy = true;
    return g;
}

/* ---- areas ---- */

/* An area of this back end, which an operation uses. */
static const skv_area *used(const guarded *g, const skv_area *area)
{
    if (area->of != g) die("an area of another back end");
    if (area->n_maps > 0) die("an operation while its area is mapped");
    return area;
}

static void check_bounds(const skv_area *area, size_t at, size_t ld, size_t n_rows, size_t n)
{
    if (n_rows == 0 || n == 0) return;
    if (n_rows > 1 && ld < n) die("rows that overlap each other");
    const size_t end = at + (n_rows - 1) * ld + n;
    if (end > area->n) die("rows beyond the end of their area");
}

/* The CPU's rows for n_rows rows of n columns of any kind. */
static skv_rows rows_of(const guarded *g, skv_rows rows, size_t n_rows, size_t n)
{
    if (!rows.area) die("rows of no area");
    check_bounds(used(g, rows.area), rows.at, rows.ld, n_rows, n);
    rows.area = rows.area->inner;
    return rows;
}

static skv_rows floats_of(const guarded *g, skv_rows rows, size_t n_rows, size_t n)
{
    if (rows.area && rows.area->spec.kind != SKV_AREA_F32) die("activations where floats are due");
    return rows_of(g, rows, n_rows, n);
}

static skv_vec vec_of(const guarded *g, skv_vec vec, size_t n)
{
    if (!vec.area) return vec;
    if (vec.area->spec.kind != SKV_AREA_F32) die("activations where a vector is due");
    check_bounds(used(g, vec.area), vec.at, n, 1, n);
    vec.area = vec.area->inner;
    return vec;
}

static skv_norm norm_of(const guarded *g, skv_norm norm, size_t n)
{
    norm.weight = vec_of(g, norm.weight, n);
    return norm;
}

/* Rows that a list of n rows reaches; NULL: the first n. */
static size_t reach(const uint32_t *rows, size_t n)
{
    size_t end = rows ? 0 : n;
    for (size_t i = 0; rows && i < n; i++) end = rows[i] >= end ? rows[i] + (size_t)1 : end;
    return end;
}

/* x and y of an operation that must not overlap. */
static void check_apart(skv_rows x, size_t x_rows, size_t nx, skv_rows y, size_t y_rows, size_t ny)
{
    if (x.area != y.area || x_rows == 0 || y_rows == 0) return;
    const size_t x_end = x.at + (x_rows - 1) * x.ld + nx, y_end = y.at + (y_rows - 1) * y.ld + ny;
    if (x.at < y_end && y.at < x_end) die("results that overlap what they are made of");
}

static float *twin_row(const guarded *g, skv_rows inner, size_t i)
{
    return g->cpu->map(g->cpu, skv_rows_from(inner, i, 0), 1, 1, SKV_MAP_BOTH).at;
}

/* What is undefined from now on. */
static void spoil(const guarded *g, skv_rows inner, size_t n_rows, size_t n)
{
    for (size_t i = 0; i < n_rows; i++) {
        memset(twin_row(g, inner, i), NONSENSE, n * sizeof(float));
    }
}

static skv_status guarded_areas_create(skv_backend *base, const skv_area_spec *specs, size_t n,
                                       skv_area **out, skv_error *err)
{
    guarded *g = (guarded *)base;
    SKV_TRY(g->cpu->areas_create(g->cpu, specs, n, out, err));
    for (size_t i = 0; i < n; i++) {
        skv_area *area = take(sizeof *area);
        *area = (skv_area){.of = g,
                           .inner = out[i],
                           .spec = specs[i],
                           .n = specs[i].n_rows * specs[i].n_columns,
                           .n_created = i == 0 ? n : 0};
        out[i] = area;
    }
    g->n_areas += n;
    return SKV_OK;
}

static void guarded_areas_free(skv_backend *base, skv_area **areas, size_t n)
{
    guarded *g = (guarded *)base;
    if (n == 0 || !areas[0]) return;
    if (areas[0]->n_created != n) die("areas are freed that were not created together");
    skv_area **inner = take(n * sizeof(skv_area *));
    for (size_t i = 0; i < n; i++) {
        inner[i] = used(g, areas[i])->inner;
        free(areas[i]);
        areas[i] = NULL;
    }
    g->cpu->areas_free(g->cpu, inner, n);
    free(inner);
    g->n_areas -= n;
}

static skv_bytes guarded_areas_bytes(const skv_backend *base, const skv_area_spec *specs, size_t n)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->areas_bytes(cpu, specs, n);
}

static skv_mapped guarded_map(skv_backend *base, skv_rows rows, size_t n_rows, size_t n,
                              skv_map_access access)
{
    guarded *g = (guarded *)base;
    mapping *m = g->maps;
    if (access & SKV_MAP_READ) wait(g);
    while (m < g->maps + MAX_MAPS && m->host) m++;
    if (m == g->maps + MAX_MAPS) die("too much is mapped at a time");
    if (!rows.area || rows.area->of != g) die("what is mapped is not an area's");
    check_bounds(rows.area, rows.at, rows.ld, n_rows, n);
    const size_t ld = n_rows > 1 && rows.ld != n ? n + PADDING : n;
    const size_t n_bytes = n_rows * ld * sizeof(float);
    *m = (mapping){take(n_bytes), rows, n_rows, n, ld, access};
    memset(m->host, NONSENSE, n_bytes);
    rows.area->n_maps++;
    rows.area = rows.area->inner;
    for (size_t i = 0; (access & SKV_MAP_READ) && i < n_rows; i++) {
        memcpy(m->host + i * ld, twin_row(g, rows, i), n * sizeof(float));
    }
    return (skv_mapped){m->host, ld};
}

static void guarded_unmap(skv_backend *base, skv_mapped mapped)
{
    guarded *g = (guarded *)base;
    mapping *m = g->maps;
    while (m < g->maps + MAX_MAPS && (!mapped.at || m->host != mapped.at)) m++;
    if (m == g->maps + MAX_MAPS) die("what is not mapped is unmapped");
    skv_rows rows = m->rows;
    rows.area->n_maps--;
    rows.area = rows.area->inner;
    for (size_t i = 0; (m->access & SKV_MAP_WRITE) && i < m->n_rows; i++) {
        memcpy(twin_row(g, rows, i), m->host + i * m->ld, m->n * sizeof(float));
    }
    free(m->host);
    m->host = NULL;
}

/* ---- pages ---- */

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
    if (n_bytes > r->n_bytes - offset) die("bytes beyond the end of pages");
    return r->twin + offset;
}

static void *guarded_pages_create(skv_backend *base, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    const size_t n = n_bytes ? n_bytes : 1;
    if (g->n_regions == MAX_REGIONS) die("too many allocations");
    unsigned char *twin = g->cpu->pages_create(g->cpu, n_bytes);
    if (!twin) return NULL;
    void *at = __real_mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("no addresses");
    g->regions[g->n_regions++] = (region){at, twin, n};
    return at;
}

static void guarded_pages_free(skv_backend *base, void *pages, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    region *r = find_region(g, pages);
    if (!r || r->at != pages) die("pages that it has not made are freed");
    if (r->n_bytes != (n_bytes ? n_bytes : 1)) die("pages are freed with another size");
    g->cpu->pages_free(g->cpu, r->twin, n_bytes);
    (void)munmap(r->at, r->n_bytes);
    *r = g->regions[--g->n_regions];
}

static void guarded_page_read(skv_backend *base, void *host, const void *page, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    wait(g);
    g->cpu->page_read(g->cpu, host, twin_of(g, page, n_bytes), n_bytes);
}

static void guarded_page_write(skv_backend *base, void *page, const void *host, size_t n_bytes)
{
    guarded *g = (guarded *)base;
    g->cpu->page_write(g->cpu, twin_of(g, page, n_bytes), host, n_bytes);
}

static void guarded_page_copy(skv_backend *base, void *to, const void *from, size_t n_bytes)
{
    guarded *g = enter(base);
    g->cpu->page_copy(g->cpu, twin_of(g, to, n_bytes), twin_of(g, from, n_bytes), n_bytes);
}

/* A table of pages for the CPU; to be freed. */
static void **twin_table(const guarded *g, void *const *table, size_t n)
{
    void **twins = take(n * sizeof *twins);
    for (size_t i = 0; i < n; i++) twins[i] = twin_of(g, table[i], 1);
    return twins;
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
    skv_linear *inner;
    SKV_TRY(cpu->linear_create(cpu, spec, &inner, err));
    skv_linear *w = take(sizeof *w + spec->n_parts * sizeof *w->n_rows);
    *w = (skv_linear){inner, spec->n_parts, spec->K, spec->paired};
    for (size_t i = 0; i < spec->n_parts; i++) w->n_rows[i] = spec->parts[i].n_rows;
    *out = w;
    return SKV_OK;
}

static void guarded_linear_free(skv_backend *base, skv_linear *w)
{
    skv_backend *cpu = ((guarded *)base)->cpu;
    if (!w) return;
    cpu->linear_free(cpu, w->inner);
    free(w);
}

/* ---- operations ---- */

/* Columns of y. */
static size_t columns_of(const skv_linear *w, const skv_linear_args *a)
{
    const size_t end = a->part1 ? a->part1 : w->n_parts;
    size_t n = 0;
    if (end > w->n_parts || a->part0 >= end) die("a part that a matrix does not have");
    if (w->paired && a->epilogue != SKV_EPILOGUE_STORE) return w->n_rows[0];
    for (size_t i = a->part0; i < end; i++) n += w->n_rows[i];
    return n;
}

/* Arguments for the CPU of a product, whose y has y_rows rows. */
static skv_linear_args product_of(const guarded *g, const skv_linear_args *args,
                                  const skv_linear *w, size_t y_rows)
{
    skv_linear_args a = *args;
    const size_t n = columns_of(w, args), x_rows = reach(args->rows, y_rows);
    check_apart(a.x, x_rows, w->K, a.y, y_rows, n);
    a.x = rows_of(g, a.x, x_rows, w->K);
    a.y = rows_of(g, a.y, y_rows, n);
    a.norm = norm_of(g, a.norm, w->K);
    a.w = w->inner;
    return a;
}

static void guarded_linear(skv_backend *base, const skv_linear_args *args)
{
    guarded *g = enter(base);
    const skv_linear_args a = product_of(g, args, args->w, args->n_rows);
    g->cpu->linear(g->cpu, &a);
}

static void guarded_linear_groups(skv_backend *base, const skv_linear_args *args,
                                  const skv_linear_group *groups, size_t n_groups)
{
    guarded *g = enter(base);
    skv_linear_group *inner = take(n_groups * sizeof *inner);
    size_t n_rows = 0;
    for (size_t i = 0; i < n_groups; i++) {
        inner[i] = groups[i];
        inner[i].w = groups[i].w->inner;
        if (groups[i].row0 + groups[i].n_rows > n_rows) n_rows = groups[i].row0 + groups[i].n_rows;
    }
    skv_linear_args a = product_of(g, args, groups[0].w, n_rows);
    a.w = NULL;
    g->cpu->linear_groups(g->cpu, &a, inner, n_groups);
    free(inner);
}

static void guarded_mix(skv_backend *base, const skv_mix_args *args)
{
    guarded *g = enter(base);
    skv_mix_args a = *args;
    const size_t y_rows = reach(a.places, a.n_rows * a.n_terms);
    check_apart(a.x, a.n_rows, a.n, a.y, y_rows, a.n);
    a.x = rows_of(g, a.x, a.n_rows, a.n);
    a.y = rows_of(g, a.y, y_rows, a.n);
    g->cpu->mix(g->cpu, &a);
}

static void guarded_rotate(skv_backend *base, const skv_rotate_args *args)
{
    guarded *g = enter(base);
    skv_rotate_args a = *args;
    const size_t n = a.n_heads * a.head_dim, T = reach(a.rows, a.n_rows);
    a.q = rows_of(g, a.q, a.n_rows, n);
    a.cos = floats_of(g, a.cos, T, a.n_rot / 2);
    a.sin = floats_of(g, a.sin, T, a.n_rot / 2);
    a.norm = norm_of(g, a.norm, a.norm.joined ? n : a.head_dim);
    g->cpu->rotate(g->cpu, &a);
}

static void guarded_store(skv_backend *base, const skv_store_args *args)
{
    guarded *g = enter(base);
    skv_store_args a = *args;
    const size_t n = a.n_heads * a.head_dim;
    void ***tables = take(a.n_rows * sizeof *tables);
    for (size_t i = 0; i < a.n_rows; i++) {
        bool same = i > 0 && args->tables[i] == args->tables[i - 1];
        tables[i] = same ? tables[i - 1]
                         : twin_table(g, args->tables[i], a.n_heads * a.n_copies * a.table_stride);
    }
    a.tables = (void *const *const *)tables;
    a.k = rows_of(g, a.k, a.n_rows, n);
    a.v = rows_of(g, a.v, a.n_rows, n);
    a.cos = floats_of(g, a.cos, a.n_rows, a.n_rot / 2);
    a.sin = floats_of(g, a.sin, a.n_rows, a.n_rot / 2);
    a.norm = norm_of(g, a.norm, a.norm.joined ? n : a.head_dim);
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
    const size_t n = a.n_heads * a.head_dim;
    size_t n_rows = 0;
    skv_attention_item *items = take(a.n_items * sizeof *items);
    for (size_t i = 0; i < a.n_items; i++) {
        items[i] = args->items[i];
        items[i].table = twin_table(g, items[i].table, a.n_kv_heads * a.table_stride);
        if (items[i].row0 + items[i].n_q > n_rows) n_rows = items[i].row0 + items[i].n_q;
    }
    check_apart(a.q, n_rows, n, a.out, n_rows, n);
    a.items = items;
    a.out = rows_of(g, a.out, n_rows, n);
    a.q = rows_of(g, a.q, n_rows, n);
    a.sinks = vec_of(g, a.sinks, a.n_heads);
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
    a.q = rows_of(g, a.q, a.n_q, a.n_heads * a.head_dim);
    a.sinks = vec_of(g, a.sinks, a.n_heads);
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
    a.x = rows_of(g, a.x, a.n_rows, a.n);
    a.y = rows_of(g, a.y, a.n_rows, a.n);
    a.norm = norm_of(g, a.norm, a.n);
    g->cpu->norm(g->cpu, &a);
}

static void guarded_norm_add(skv_backend *base, const skv_norm_add_args *args)
{
    guarded *g = enter(base);
    skv_norm_add_args a = *args;
    check_apart(a.x, a.n_rows, a.n, a.y, a.n_rows, a.n);
    a.x = floats_of(g, a.x, a.n_rows, a.n);
    a.y = rows_of(g, a.y, a.n_rows, a.n);
    a.norm = norm_of(g, a.norm, a.n);
    g->cpu->norm_add(g->cpu, &a);
    spoil(g, a.y, a.n_rows, a.n);
}

static void guarded_glu(skv_backend *base, const skv_glu_args *args)
{
    guarded *g = enter(base);
    skv_glu_args a = *args;
    check_apart(a.x, a.n_rows, 2 * a.n, a.y, a.n_rows, a.n);
    a.x = rows_of(g, a.x, a.n_rows, 2 * a.n);
    a.y = rows_of(g, a.y, a.n_rows, a.n);
    g->cpu->glu(g->cpu, &a);
}

static void guarded_embed_gate(skv_backend *base, const skv_embed_gate_args *args)
{
    guarded *g = enter(base);
    skv_embed_gate_args a = *args;
    check_apart(a.gate, a.n_rows, a.n, a.part, a.n_rows, a.n);
    a.gate = rows_of(g, a.gate, a.n_rows, a.n);
    a.part = rows_of(g, a.part, a.n_rows, a.n);
    a.token = floats_of(g, a.token, reach(a.rows, a.n_rows), a.n);
    a.norm = norm_of(g, a.norm, a.n);
    g->cpu->embed_gate(g->cpu, &a);
    spoil(g, a.part, a.n_rows, a.n);
}

static void guarded_gather(skv_backend *base, skv_rows x, size_t n, const uint32_t *rows,
                           size_t n_rows)
{
    guarded *g = enter(base);
    if (!x.area || !x.area->spec.moves || x.at != 0) die("rows are gathered that do not move");
    const skv_rows inner = rows_of(g, x, reach(rows, n_rows), n);
    const size_t n_all = x.area->n / x.ld;
    g->cpu->gather(g->cpu, inner, n, rows, n_rows);
    spoil(g, skv_rows_from(inner, n_rows, 0), n_all - n_rows, n);
}

static void guarded_copy_rows(skv_backend *base, skv_rows to, skv_rows from, size_t n_rows,
                              size_t n)
{
    guarded *g = enter(base);
    check_apart(from, n_rows, n, to, n_rows, n);
    g->cpu->copy_rows(g->cpu, rows_of(g, to, n_rows, n), rows_of(g, from, n_rows, n), n_rows, n);
}

static void guarded_scale(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float factor)
{
    guarded *g = enter(base);
    g->cpu->scale(g->cpu, rows_of(g, x, n_rows, n), n_rows, n, factor);
}

static void guarded_softcap(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float cap)
{
    guarded *g = enter(base);
    g->cpu->softcap(g->cpu, floats_of(g, x, n_rows, n), n_rows, n, cap);
}

static size_t guarded_row_bytes(const skv_backend *base, skv_weight_type type, size_t K)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->row_bytes(cpu, type, K);
}

static void guarded_save_rows(skv_backend *base, skv_weight_type type, unsigned char *host,
                              skv_rows x, size_t n, size_t K, skv_norm norm)
{
    guarded *g = enter(base);
    g->cpu->save_rows(g->cpu, type, host, rows_of(g, x, n, K), n, K, norm_of(g, norm, K));
    wait(g);
}

static void guarded_load_rows(skv_backend *base, skv_weight_type type, skv_rows x,
                              const unsigned char *host, size_t n, size_t K)
{
    guarded *g = enter(base);
    g->cpu->load_rows(g->cpu, type, floats_of(g, x, n, K), host, n, K);
}

#include "guarded_states.inc"

/* ---- life ---- */

static void guarded_free(skv_backend *base)
{
    guarded *g = (guarded *)base;
    if (!g) return;
    if (g->n_regions > 0 || g->n_areas > 0 || g->n_states > 0)
        die("freed before its areas and pages were");
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
        .areas_create = guarded_areas_create,
        .areas_free = guarded_areas_free,
        .areas_bytes = guarded_areas_bytes,
        .map = guarded_map,
        .unmap = guarded_unmap,
        .pages_create = guarded_pages_create,
        .pages_free = guarded_pages_free,
        .page_read = guarded_page_read,
        .page_write = guarded_page_write,
        .page_copy = guarded_page_copy,
        .reserve = guarded_reserve,
        .reserve_bytes = guarded_reserve_bytes,
        .linear_bytes = guarded_linear_bytes,
        .linear_create = guarded_linear_create,
        .linear_free = guarded_linear_free,
        .states_create = guarded_states_create,
        .states_free = guarded_states_free,
        .states_bytes = guarded_states_bytes,
        .state_copy = guarded_state_copy,
        .state_clear = guarded_state_clear,
        .state_read = guarded_state_read,
        .state_write = guarded_state_write,
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
        .conv = guarded_conv,
        .scan = guarded_scan,
        .gated_norm = guarded_gated_norm,
        .gather = guarded_gather,
        .copy_rows = guarded_copy_rows,
        .scale = guarded_scale,
        .softcap = guarded_softcap,
        .row_bytes = guarded_row_bytes,
        .save_rows = guarded_save_rows,
        .load_rows = guarded_load_rows,
    };
    *out = &g->base;
    return SKV_OK;
}
