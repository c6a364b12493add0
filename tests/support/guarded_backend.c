/* A back end whose memory nobody else can touch: see guarded_backend.h. */
#include "guarded_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

skv_status __real_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err);
_Noreturn void guarded_die(const char *what)
{
    (void)fprintf(stderr, "guarded back end: %s\n", what);
    abort();
}

void *guarded_take(size_t n_bytes)
{
    void *block = __real_malloc(n_bytes ? n_bytes : 1);
    if (!block) guarded_die("no memory");
    return block;
}

guarded *guarded_inside(skv_backend *base)
{
    guarded *g = (guarded *)base;
    if (atomic_exchange(&g->is_inside, true)) guarded_die("two threads at once");
    return g;
}

guarded *guarded_begin(skv_backend *base)
{
    guarded *g = guarded_inside(base);
    g->is_busy = true;
    return g;
}

void guarded_leave(guarded *const *g)
{
    atomic_store(&(*g)->is_inside, false);
}

/* ---- areas ---- */

/* An area of this back end, which an operation uses. */
static const skv_area *used(const guarded *g, const skv_area *area)
{
    if (!area->of) guarded_die("an area that was freed");
    if (area->of != g) guarded_die("an area of another back end");
    if (area->n_maps > 0) guarded_die("an operation while its area is mapped");
    return area;
}

/* The end of rows, in elements. */
static size_t check_bounds(const skv_area *area, size_t at, size_t ld, size_t n_rows, size_t n)
{
    if (n_rows == 0 || n == 0) return 0;
    if (n_rows > 1 && ld < n) guarded_die("rows that overlap each other");
    const size_t end = at + (n_rows - 1) * ld + n;
    if (end > area->n) guarded_die("rows beyond the end of their area");
    return end;
}

skv_rows guarded_rows(guarded *g, skv_rows rows, size_t n_rows, size_t n)
{
    if (!rows.area) guarded_die("rows of no area");
    skv_area *area = rows.area;
    const size_t end = check_bounds(used(g, area), rows.at, rows.ld, n_rows, n);
    if (g->next.n_operands == MAX_OPERANDS) guarded_die("too many operands");
    g->next.operands[g->next.n_operands++] = (operand){area, rows.at, rows.ld, n_rows, n};
    if (end > area->n_used) area->n_used = end;
    rows.area = area->inner;
    return rows;
}

skv_rows guarded_floats(guarded *g, skv_rows rows, size_t n_rows, size_t n)
{
    if (rows.area && rows.area->spec.kind != SKV_AREA_F32)
        guarded_die("activations where floats are due");
    return guarded_rows(g, rows, n_rows, n);
}

skv_rows guarded_rows_or_none(guarded *g, skv_rows rows, size_t n_rows, size_t n)
{
    return rows.area ? guarded_rows(g, rows, n_rows, n) : rows;
}

skv_vec guarded_vec(const guarded *g, skv_vec vec, size_t n)
{
    if (!vec.area) return vec;
    if (vec.area->spec.kind != SKV_AREA_F32) guarded_die("activations where a vector is due");
    (void)check_bounds(used(g, vec.area), vec.at, n, 1, n);
    vec.area = vec.area->inner;
    return vec;
}

skv_norm guarded_norm_of(const guarded *g, skv_norm norm, size_t n)
{
    norm.weight = guarded_vec(g, norm.weight, n);
    return norm;
}

void guarded_check_apart(skv_rows x, size_t x_rows, size_t nx, skv_rows y, size_t y_rows, size_t ny)
{
    if (x.area != y.area || x_rows == 0 || y_rows == 0) return;
    const size_t x_end = x.at + (x_rows - 1) * x.ld + nx, y_end = y.at + (y_rows - 1) * y.ld + ny;
    if (x.at < y_end && y.at < x_end) guarded_die("results that overlap what they are made of");
}

/* Rows of the CPU's. */
typedef struct plain_rows {
    skv_rows rows;
    size_t n_rows, n;
    float *from; /* [n_rows, ld]; NULL: nonsense */
    size_t ld;
} plain_rows;

static void replay_write(guarded *g, void *args)
{
    const plain_rows *r = args;
    for (size_t i = 0; i < r->n_rows; i++) {
        float *row = guarded_row(g, r->rows, i);
        if (r->from) {
            memcpy(row, r->from + i * r->ld, r->n * sizeof *row);
        } else {
            memset(row, NONSENSE, r->n * sizeof *row);
        }
    }
}

static void write_later(guarded *g, skv_rows rows, size_t n_rows, size_t n, float *from, size_t ld)
{
    plain_rows r = {guarded_rows(g, rows, n_rows, n), n_rows, n, from, ld};
    CLEAR_PADDING(&r);
    guarded_later(g, replay_write, &r, sizeof r);
}

void guarded_spoil(guarded *g, skv_rows inner, size_t n_rows, size_t n)
{
    skv_rows rows = inner;
    rows.area = g->areas;
    while (rows.area && rows.area->inner != inner.area) rows.area = rows.area->next;
    write_later(g, rows, n_rows, n, NULL, 0);
}

void guarded_forget(guarded *g)
{
    for (skv_area *a = g->areas; a; a = a->next) {
        if (a->spec.lasts || a->n_used == 0) continue;
        write_later(g, (skv_rows){.area = a}, 1, a->n_used, NULL, 0);
        a->n_used = 0;
    }
}

static skv_area *new_area(const guarded *g, const skv_area_spec *spec, skv_area *inner)
{
    const size_t n = spec->n_rows * spec->n_columns;
    skv_area *area = guarded_take(sizeof *area);
    *area = (skv_area){.of = g, .inner = inner, .spec = *spec, .n = n, .next = g->areas};
    if (!g->rounds || spec->kind != SKV_AREA_ACTIVATIONS) return area;
    area->bits = __real_calloc(n + 1, sizeof *area->bits);
    if (!area->bits) guarded_die("no memory");
    if (n > 0) memset(guarded_row(g, (skv_rows){.area = inner}, 0), NONSENSE, n * sizeof(float));
    return area;
}

static skv_status guarded_areas_create(skv_backend *base, const skv_area_spec *specs, size_t n,
                                       skv_area **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    if (g->n_under_way > 0) guarded_die("areas are created within a step");
    SKV_TRY(g->cpu->areas_create(g->cpu, specs, n, out, err));
    for (size_t i = 0; i < n; i++) {
        out[i] = g->areas = new_area(g, &specs[i], out[i]);
        out[i]->n_created = i == 0 ? n : 0;
    }
    g->n_areas += n;
    return SKV_OK;
}

/* An area goes; its struct stays, so that it is known if something still uses it. */
static void bury(guarded *g, skv_area *area)
{
    skv_area **at = &g->areas;
    while (*at != area) at = &(*at)->next;
    *at = area->next;
    area->next = g->gone;
    g->gone = area;
    area->of = NULL;
    free(area->bits);
    area->bits = NULL;
}

static void guarded_areas_free(skv_backend *base, skv_area **areas, size_t n)
{
    guarded *g LEAVES = guarded_inside(base);
    if (n == 0 || !areas[0]) return;
    if (g->n_under_way > 0) guarded_die("areas are freed within a step");
    if (areas[0]->n_created != n) guarded_die("areas are freed that were not created together");
    guarded_run(g);
    skv_area **inner = guarded_take(n * sizeof(skv_area *));
    for (size_t i = 0; i < n; i++) {
        inner[i] = used(g, areas[i])->inner;
        bury(g, areas[i]);
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
    guarded *g LEAVES = guarded_inside(base);
    mapping *m = g->maps;
    if (access & SKV_MAP_READ) {
        guarded_wait(g);
        g->n_mapped += n_rows * n;
    }
    while (m < g->maps + MAX_MAPS && m->host) m++;
    if (m == g->maps + MAX_MAPS) guarded_die("too much is mapped at a time");
    if (!rows.area || rows.area->of != g) guarded_die("what is mapped is not an area's");
    (void)check_bounds(rows.area, rows.at, rows.ld, n_rows, n);
    const size_t ld = n_rows > 1 && rows.ld != n ? n + PADDING : n;
    const size_t n_bytes = n_rows * ld * sizeof(float);
    *m = (mapping){guarded_take(n_bytes), rows, n_rows, n, ld, access};
    memset(m->host, NONSENSE, n_bytes);
    rows.area->n_maps++;
    for (size_t i = 0; (access & SKV_MAP_READ) && i < n_rows; i++) {
        guarded_load(g, rows.area, rows.at + i * rows.ld, m->host + i * ld, n);
    }
    return (skv_mapped){m->host, ld};
}

static void guarded_unmap(skv_backend *base, skv_mapped mapped)
{
    guarded *g LEAVES = guarded_inside(base);
    mapping *m = g->maps;
    while (m < g->maps + MAX_MAPS && (!mapped.at || m->host != mapped.at)) m++;
    if (m == g->maps + MAX_MAPS) guarded_die("what is not mapped is unmapped");
    m->rows.area->n_maps--;
    if (m->access & SKV_MAP_WRITE) {
        float *host = guarded_keep(g, m->host, m->n_rows * m->ld * sizeof *host);
        write_later(g, m->rows, m->n_rows, m->n, host, m->ld);
    }
    free(m->host);
    m->host = NULL;
}

/* ---- before anything is created ---- */

static skv_status guarded_fits(const skv_backend *base, const skv_backend_shape *shape,
                               skv_error *err)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->fits(cpu, shape, err);
}

static skv_bytes guarded_available(const skv_backend *base)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->available(cpu);
}

/* ---- weights ---- */

static skv_status guarded_reserve(skv_backend *base, const skv_backend_limits *limits,
                                  skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    guarded_run(g);
    return g->cpu->reserve(g->cpu, limits, err);
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
    guarded *g LEAVES = guarded_inside(base);
    skv_linear *inner;
    SKV_TRY(g->cpu->linear_create(g->cpu, spec, &inner, err));
    skv_linear *w = guarded_take(sizeof *w + spec->n_parts * sizeof *w->n_rows);
    *w = (skv_linear){inner, spec->n_parts, spec->K, spec->paired};
    for (size_t i = 0; i < spec->n_parts; i++) w->n_rows[i] = spec->parts[i].n_rows;
    *out = w;
    return SKV_OK;
}

static void guarded_linear_free(skv_backend *base, skv_linear *w)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!w) return;
    guarded_run(g);
    g->cpu->linear_free(g->cpu, w->inner);
    free(w);
}

/* ---- operations ---- */

/* Columns of y. */
size_t guarded_columns_of(const skv_linear *w, const skv_linear_args *a)
{
    const size_t end = a->part1 ? a->part1 : w->n_parts;
    size_t n = 0;
    if (end > w->n_parts || a->part0 >= end) guarded_die("a part that a matrix does not have");
    if (w->paired && a->epilogue != SKV_EPILOGUE_STORE) return w->n_rows[0];
    for (size_t i = a->part0; i < end; i++) n += w->n_rows[i];
    return n;
}

REPLAYS(linear)

static void guarded_linear(skv_backend *base, const skv_linear_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_linear_args a = *args;
    const size_t n = guarded_columns_of(a.w, &a), K = a.w->K;
    size_t x_rows = a.n_rows;
    if (a.step) {
        x_rows = a.step->n_rows;
        if (a.n_rows != guarded_set(g, a.step, a.set)->n_rows) guarded_die("not the rows of a set");
        a.step = a.step->inner;
    }
    guarded_check_apart(a.x, x_rows, K, a.y, a.n_rows, n);
    a.x = guarded_rows(g, a.x, x_rows, K);
    a.y = guarded_rows(g, a.y, a.n_rows, n);
    a.norm = guarded_norm_of(g, a.norm, K);
    a.w = a.w->inner;
    LATER(g, linear, a);
}

/* Angles that an operation names, for heads of this many numbers. */
static void check_angles(const skv_backend_step *step, size_t i, size_t head_dim)
{
    if (i >= step->n_angles) guarded_die("angles that a step does not have");
    if (2 * step->angles[i]->n > head_dim) guarded_die("more angles than a head has numbers");
}

REPLAYS(place)

static void guarded_place(skv_backend *base, const skv_place_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_place_args a = *args;
    const skv_set_spec *set = guarded_set(g, a.step, a.set);
    const size_t n = a.n_heads * a.head_dim, n_kv = a.n_kv_heads * a.head_dim, T = a.step->n_rows;
    if (a.q.area) {
        check_angles(a.step, a.q_angles, a.head_dim);
        a.q = guarded_rows(g, a.q, set->n_rows, n);
        a.q_norm = guarded_norm_of(g, a.q_norm, a.q_norm.joined ? n : a.head_dim);
    }
    if (a.k.area) {
        const skv_slots *slots = guarded_slots_of(a.step->spans[0].table, a.slot);
        const bool same = a.k.area == a.v.area && a.k.at == a.v.at && a.k.ld == a.v.ld;
        if (slots->track0[a.slot + 1] - slots->track0[a.slot] != a.n_kv_heads * a.n_copies) {
            guarded_die("not as many heads as the slot has");
        }
        if (same && a.v_eps <= 0) guarded_die("values that are rotated keys");
        guarded_check_written(a.step, a.slot);
        check_angles(a.step, a.k_angles, a.head_dim);
        a.k = guarded_rows(g, a.k, T, n_kv);
        a.v = guarded_rows(g, a.v, T, n_kv);
        a.k_norm = guarded_norm_of(g, a.k_norm, a.k_norm.joined ? n_kv : a.head_dim);
    }
    a.step = a.step->inner;
    LATER(g, place, a);
    if (a.k.area) guarded_spoil(g, a.k, T, n_kv);
}

REPLAYS(attention)

static void guarded_attention(skv_backend *base, const skv_attention_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_attention_args a = *args;
    const size_t n = a.n_heads * a.head_dim;
    const skv_set_spec *set = guarded_set(g, a.step, a.set);
    if (set->n_items == 0) guarded_die("attention of a set that has no items");
    for (size_t i = 0; i < set->n_items; i++) {
        const skv_attention_item *item = &set->items[i];
        const skv_table *table = a.step->spans[item->span].table;
        (void)guarded_slots_of(table, a.slot);
        guarded_check_seen(table, a.slot, item->n_past, item->n_q, a.window);
    }
    guarded_check_apart(a.q, set->n_rows, n, a.out, set->n_rows, n);
    a.step = a.step->inner;
    a.out = guarded_rows(g, a.out, set->n_rows, n);
    a.q = guarded_rows(g, a.q, set->n_rows, n);
    a.sinks = guarded_vec(g, a.sinks, a.n_heads);
    LATER(g, attention, a);
}

/* Votes for the rows that the last token sees, which is behind n_past of its sequence. */
static skv_rows votes_of(guarded *g, const skv_votes_args *a, const skv_table *table, size_t n_past)
{
    const skv_slots *slots = table->slots;
    const size_t track0 = slots->track0[a->slot], n_tracks = slots->track0[a->slot + 1] - track0;
    size_t n = 0;
    for (size_t t = 0; t < n_tracks; t++) {
        const size_t n_rows = n_past - table->dropped[track0 + t];
        if (n_rows > n) n = n_rows;
    }
    return guarded_floats(g, a->votes, a->by_query_head ? a->n_heads : n_tracks, n);
}

REPLAYS(votes)

static void guarded_votes(skv_backend *base, const skv_votes_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_votes_args a = *args;
    const skv_set_spec *set = guarded_set(g, a.step, a.set);
    if (a.item >= set->n_items) guarded_die("an item that a set does not have");
    const skv_attention_item *item = &set->items[a.item];
    const skv_table *table = a.step->spans[item->span].table;
    if (a.n == 0 || a.first + a.n > item->n_q) guarded_die("tokens that an item does not have");
    (void)guarded_slots_of(table, a.slot);
    guarded_check_seen(table, a.slot, item->n_past + a.first, a.n, a.window);
    a.votes = votes_of(g, &a, table, item->n_past + a.first + a.n);
    a.step = a.step->inner;
    a.q = guarded_rows(g, a.q, set->n_rows, a.n_heads * a.head_dim);
    a.sinks = guarded_vec(g, a.sinks, a.n_heads);
    LATER(g, votes, a);
}

REPLAYS(norm)

static void guarded_norm(skv_backend *base, const skv_norm_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_norm_args a = *args;
    a.x = guarded_rows(g, a.x, a.n_rows, a.n);
    a.y = guarded_rows(g, a.y, a.n_rows, a.n);
    a.norm = guarded_norm_of(g, a.norm, a.n);
    LATER(g, norm, a);
}

REPLAYS(norm_add)

static void guarded_norm_add(skv_backend *base, const skv_norm_add_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_norm_add_args a = *args;
    guarded_check_apart(a.x, a.n_rows, a.n, a.y, a.n_rows, a.n);
    a.x = guarded_floats(g, a.x, a.n_rows, a.n);
    a.y = guarded_rows(g, a.y, a.n_rows, a.n);
    a.norm = guarded_norm_of(g, a.norm, a.n);
    LATER(g, norm_add, a);
    guarded_spoil(g, a.y, a.n_rows, a.n);
}

REPLAYS(glu)

static void guarded_glu(skv_backend *base, const skv_glu_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_glu_args a = *args;
    guarded_check_apart(a.x, a.n_rows, 2 * a.n, a.y, a.n_rows, a.n);
    a.x = guarded_rows(g, a.x, a.n_rows, 2 * a.n);
    a.y = guarded_rows(g, a.y, a.n_rows, a.n);
    LATER(g, glu, a);
}

REPLAYS(embed_gate)

static void guarded_embed_gate(skv_backend *base, const skv_embed_gate_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_embed_gate_args a = *args;
    const size_t n_rows = guarded_set(g, a.step, a.set)->n_rows;
    guarded_check_apart(a.gate, n_rows, a.n, a.part, n_rows, a.n);
    a.gate = guarded_rows(g, a.gate, n_rows, a.n);
    a.part = guarded_rows(g, a.part, n_rows, a.n);
    a.token = guarded_floats(g, a.token, a.step->n_rows, a.n);
    a.norm = guarded_norm_of(g, a.norm, a.n);
    a.step = a.step->inner;
    LATER(g, embed_gate, a);
    guarded_spoil(g, a.part, n_rows, a.n);
}

/* Operations that take no struct. */
typedef struct simple {
    skv_rows x, y;
    size_t n_rows, n;
    float number;
    skv_weight_type type;
    skv_norm norm;
    unsigned char *host;
} simple;

static void replay_copy_rows(guarded *g, void *args)
{
    const simple *a = args;
    g->cpu->copy_rows(g->cpu, a->y, a->x, a->n_rows, a->n);
}

static void guarded_copy_rows(skv_backend *base, skv_rows to, skv_rows from, size_t n_rows,
                              size_t n)
{
    guarded *g LEAVES = guarded_begin(base);
    guarded_check_apart(from, n_rows, n, to, n_rows, n);
    simple a = {.n_rows = n_rows, .n = n};
    a.x = guarded_rows(g, from, n_rows, n);
    a.y = guarded_rows(g, to, n_rows, n);
    LATER(g, copy_rows, a);
}

static void replay_scale(guarded *g, void *args)
{
    const simple *a = args;
    g->cpu->scale(g->cpu, a->x, a->n_rows, a->n, a->number);
}

static void guarded_scale(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float factor)
{
    guarded *g LEAVES = guarded_begin(base);
    simple a = {.x = guarded_rows(g, x, n_rows, n), .n_rows = n_rows, .n = n, .number = factor};
    LATER(g, scale, a);
}

static void replay_softcap(guarded *g, void *args)
{
    const simple *a = args;
    g->cpu->softcap(g->cpu, a->x, a->n_rows, a->n, a->number);
}

static void guarded_softcap(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float cap)
{
    guarded *g LEAVES = guarded_begin(base);
    simple a = {.x = guarded_floats(g, x, n_rows, n), .n_rows = n_rows, .n = n, .number = cap};
    LATER(g, softcap, a);
}

static size_t guarded_row_bytes(const skv_backend *base, skv_weight_type type, size_t K)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->row_bytes(cpu, type, K);
}

static void replay_save_rows(guarded *g, void *args)
{
    const simple *a = args;
    g->cpu->save_rows(g->cpu, a->type, a->host, a->x, a->n_rows, a->n, a->norm);
}

/* The rows go to the host when a step has been waited for. */
static void guarded_save_rows(skv_backend *base, skv_weight_type type, unsigned char *host,
                              skv_rows x, size_t n, size_t K, skv_norm norm)
{
    guarded *g LEAVES = guarded_begin(base);
    saving *s = guarded_take(sizeof *s);
    *s = (saving){g->savings, host, NULL, n * g->cpu->row_bytes(g->cpu, type, K)};
    s->copy = guarded_take(s->n_bytes);
    g->savings = s;
    memset(host, NONSENSE, s->n_bytes);
    simple a = {.n_rows = n, .n = K, .type = type, .host = s->copy};
    a.x = guarded_rows(g, x, n, K);
    a.norm = guarded_norm_of(g, norm, K);
    LATER(g, save_rows, a);
}

void guarded_deliver(guarded *g)
{
    while (g->savings) {
        saving *s = g->savings;
        g->savings = s->next;
        memcpy(s->host, s->copy, s->n_bytes);
        free(s->copy);
        free(s);
    }
}

static void replay_load_rows(guarded *g, void *args)
{
    const simple *a = args;
    g->cpu->load_rows(g->cpu, a->type, a->x, a->host, a->n_rows, a->n);
}

static void guarded_load_rows(skv_backend *base, skv_weight_type type, skv_rows x,
                              const unsigned char *host, size_t n, size_t K)
{
    guarded *g LEAVES = guarded_begin(base);
    simple a = {.x = guarded_floats(g, x, n, K), .n_rows = n, .n = K, .type = type};
    a.host = guarded_keep(g, host, n * g->cpu->row_bytes(g->cpu, type, K));
    LATER(g, load_rows, a);
}

/* ---- life ---- */

static void guarded_free(skv_backend *base)
{
    guarded *g = (guarded *)base;
    if (!g) return;
    if (g->n_areas + g->n_pools + g->n_experts + g->n_tables + g->n_slots + g->n_states +
            g->n_steps + g->n_angles >
        0)
        guarded_die("freed before its areas, pages and steps were");
    for (size_t i = 0; i < MAX_READS; i++) {
        if (g->readings[i].ticket) guarded_die("freed before pages have arrived");
    }
    if (g->savings) guarded_die("freed before rows were saved");
    guarded_list_free(g);
    for (skv_area *next; g->gone; g->gone = next) {
        next = g->gone->next;
        free(g->gone);
    }
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

size_t guarded_backend_mapped(const skv_backend *be)
{
    return ((const guarded *)be)->n_mapped;
}

skv_status guarded_create(const skv_backend_options *options, skv_backend **out, skv_error *err)
{
    skv_backend *cpu;
    skv_backend_options inner = *options;
    const bool rounds = inner.device && strcmp(inner.device, "emulated") == 0;
    if (rounds) inner.device = "cpu";
    SKV_TRY(__real_skv_backend_create(&inner, &cpu, err));
    guarded *g = __real_calloc(1, sizeof *g);
    if (!g) guarded_die("no memory");
    g->cpu = cpu;
    g->base = (skv_backend){
        .name = cpu->name,
        .level = cpu->level,
        .promises = cpu->promises,
        .n_nodes = cpu->n_nodes,
        .free = guarded_free,
        .fits = guarded_fits,
        .available = guarded_available,
        .areas_create = guarded_areas_create,
        .areas_free = guarded_areas_free,
        .areas_bytes = guarded_areas_bytes,
        .map = guarded_map,
        .unmap = guarded_unmap,
        .reserve = guarded_reserve,
        .reserve_bytes = guarded_reserve_bytes,
        .linear_bytes = guarded_linear_bytes,
        .linear_create = guarded_linear_create,
        .linear_free = guarded_linear_free,
        .linear = guarded_linear,
        .place = guarded_place,
        .attention = guarded_attention,
        .votes = guarded_votes,
        .norm = guarded_norm,
        .norm_add = guarded_norm_add,
        .glu = guarded_glu,
        .embed_gate = guarded_embed_gate,
        .copy_rows = guarded_copy_rows,
        .scale = guarded_scale,
        .softcap = guarded_softcap,
        .row_bytes = guarded_row_bytes,
        .save_rows = guarded_save_rows,
        .load_rows = guarded_load_rows,
    };
    guarded_add_pages(&g->base);
    guarded_add_steps(&g->base);
    guarded_add_picks(&g->base);
    guarded_add_states(&g->base);
    guarded_add_experts(&g->base);
    guarded_add_tables(&g->base);
    if (rounds) guarded_emulate(g);
    *out = &g->base;
    return SKV_OK;
}
