/*
 * Steps: lists of rows that operations look up. All lists lie in one block of pinned memory, laid
 * out for the rows that a step has, which is copied to the device at once.
 */
#include <assert.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

enum { ALIGNMENT = 64, ROWS_PER_TASK = 8 };

/* Launches of so few rows take the host longer than the device, or nearly: they are recorded. */
enum { RECORDED_ROWS = 512, RECORDED_OF_SPAN = 16 };

/* ---- the block ---- */

/* Where lists begin in it. */
typedef struct layout {
    size_t rows, ids, spans, sets[SKV_SET_COUNT], items[SKV_SET_COUNT], numbers;
    size_t described; /* bytes without the chosen rows */
    size_t end;
} layout;

static size_t take(size_t *used, size_t n, size_t size)
{
    const size_t at = *used;
    *used += skv_round_up(n * size, ALIGNMENT);
    return at;
}

/* Of a step of n_rows rows. CHOSEN stands after the room of the largest one. */
static layout lay_out(const skv_backend_step_limits *limits, size_t n_rows)
{
    layout l = {0};
    const size_t most = limits->max_rows;
    l.rows = take(&l.described, n_rows, sizeof(skv_cuda_step_row));
    l.ids = take(&l.described, n_rows, sizeof(uint32_t));
    l.spans = take(&l.described, n_rows, sizeof(skv_cuda_span));
    for (skv_row_set i = 0; i < SKV_SET_CHOSEN; i++) {
        l.sets[i] = take(&l.described, n_rows, sizeof(uint32_t));
        if (i != SKV_SET_WANTED) l.items[i] = take(&l.described, n_rows, sizeof(skv_cuda_item));
    }
    l.numbers = take(&l.described, n_rows * 2 * limits->angle_columns, sizeof(float));
    l.end = n_rows < most ? lay_out(limits, most).sets[SKV_SET_CHOSEN] : l.described;
    l.sets[SKV_SET_CHOSEN] = take(&l.end, most, sizeof(uint32_t));
    l.items[SKV_SET_CHOSEN] = take(&l.end, most, sizeof(skv_cuda_item));
    return l;
}

static skv_bytes step_bytes(const skv_backend *base, const skv_backend_step_limits *limits)
{
    (void)base;
    const size_t n = lay_out(limits, limits->max_rows).end;
    const size_t n_host = n + sizeof(skv_backend_step) + limits->max_rows * sizeof(skv_table *);
    return skv_bytes_add((skv_bytes){.device = n, .host = n_host}, skv_cuda_picks_bytes(limits));
}

static void step_free(skv_backend *base, skv_backend_step *step)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    if (!step) return;
    skv_cuda_delete(&be->device, step->device);
    skv_cuda_host_delete(&be->device, step->host);
    skv_cuda_picks_free(be, step->picks);
    skv_free(step->tables);
    skv_free(step);
}

static skv_status take_blocks(skv_cuda_backend *be, skv_backend_step *step, skv_error *err)
{
    void *device = NULL, *host = NULL;
    SKV_TRY(skv_cuda_new(&be->device, step->n_bytes, &device, err));
    step->device = device;
    SKV_TRY(skv_cuda_host_new(&be->device, step->n_bytes, &host, err));
    step->host = host;
    step->tables = skv_alloc_zero(step->limits.max_rows, sizeof *step->tables);
    SKV_REQUIRE(step->tables, err, SKV_MEMORY, "a step: out of memory");
    return skv_cuda_picks_create(be, &step->limits, &step->picks, err);
}

static skv_status step_create(skv_backend *base, const skv_backend_step_limits *limits,
                              skv_backend_step **out, skv_error *err)
{
    skv_backend_step *step = skv_alloc_zero(1, sizeof *step);
    SKV_REQUIRE(step, err, SKV_MEMORY, "a step: out of memory");
    step->limits = *limits;
    step->n_bytes = lay_out(limits, limits->max_rows).end;
    const skv_status status = take_blocks(skv_cuda_of(base), step, err);
    if (status != SKV_OK) {
        step_free(base, step);
        return status;
    }
    *out = step;
    return SKV_OK;
}

/* ---- angles ---- */

static skv_status angles_create(skv_backend *base, const skv_angles_spec *spec, skv_angles **out,
                                skv_error *err)
{
    (void)base;
    skv_angles *angles = skv_alloc(1, sizeof *angles);
    SKV_REQUIRE(angles, err, SKV_MEMORY, "angles: out of memory");
    *angles = (skv_angles){*spec};
    *out = angles;
    return SKV_OK;
}

static void angles_free(skv_backend *base, skv_angles *angles)
{
    (void)base;
    skv_free(angles);
}

/* One rotary embedding of all rows. */
typedef struct angle_job {
    const skv_backend_step_spec *spec;
    const skv_angles_spec *how;
    float *cosine, *sine; /* [n_rows, how->n] */
    size_t n_rows;
} angle_job;

static void fill_angles(void *arg, size_t i_task, size_t i_thread)
{
    const angle_job *job = arg;
    const skv_backend_span *span = job->spec->spans;
    size_t i = i_task * ROWS_PER_TASK, row0 = 0;
    const size_t end = skv_min_size(i + ROWS_PER_TASK, job->n_rows);
    (void)i_thread;
    for (; i < end; i++) {
        while (i >= row0 + span->n) row0 += span++->n;
        const size_t position =
            job->spec->positions ? job->spec->positions[i] : span->position0 + i - row0;
        job->how->angles(job->how->ctx, position, span->context, job->cosine + i * job->how->n,
                         job->sine + i * job->how->n);
    }
}

/* Where another step has these angles, or NULL. */
static const skv_cuda_step_angles *find_angles(const skv_backend_step *other,
                                               const skv_angles *angles)
{
    for (size_t a = 0; other && a < other->n_angles; a++) {
        if (other->angles[a].of == angles) return &other->angles[a];
    }
    return NULL;
}

static void take_angles(const skv_cuda_backend *be, skv_backend_step *step,
                        const skv_backend_step_spec *spec, size_t numbers)
{
    size_t at = numbers;
    step->n_angles = spec->n_angles;
    for (size_t a = 0; a < spec->n_angles; a++) {
        const skv_angles *angles = spec->angles[a];
        const skv_cuda_step_angles *other = find_angles(spec->angles_of, angles);
        const size_t n = step->n_rows * angles->spec.n, n_bytes = n * sizeof(float);
        if (other) {
            step->angles[a] = *other;
            continue;
        }
        angle_job job = {.spec = spec,
                         .how = &angles->spec,
                         .cosine = (float *)(void *)(step->host + at),
                         .sine = (float *)(void *)(step->host + at) + n,
                         .n_rows = step->n_rows};
        skv_pool_run(be->pool, skv_ceil_div(step->n_rows, ROWS_PER_TASK), fill_angles, &job);
        step->angles[a] =
            (skv_cuda_step_angles){.of = angles,
                                   .at = {.cosine = (float *)(void *)(step->device + at),
                                          .sine = (float *)(void *)(step->device + at) + n,
                                          .n = (uint32_t)angles->spec.n}};
        at += 2 * n_bytes;
    }
}

/* ---- describing a step ---- */

static void list_rows(skv_backend_step *step, const skv_backend_step_spec *spec, const layout *l)
{
    skv_cuda_step_row *rows = (skv_cuda_step_row *)(void *)(step->host + l->rows);
    skv_cuda_span *spans = (skv_cuda_span *)(void *)(step->host + l->spans);
    size_t row = 0;
    for (size_t s = 0; s < spec->n_spans; s++) {
        const skv_backend_span *span = &spec->spans[s];
        step->tables[s] = span->table;
        spans[s] = (skv_cuda_span){(uint32_t)span->state, (uint32_t)row, (uint32_t)span->n,
                                   (uint32_t)span->n_past, (uint32_t)span->n_undo};
        for (size_t i = 0; i < span->n; i++) {
            rows[row++] = (skv_cuda_step_row){.table = span->table ? span->table->at : NULL,
                                              .place = (uint32_t)(span->n_past + i)};
        }
    }
    if (spec->ids) memcpy(step->host + l->ids, spec->ids, step->n_rows * sizeof *spec->ids);
    step->slots = step->tables[0] ? step->tables[0]->slots : NULL;
    step->rows = (const skv_cuda_step_row *)(const void *)(step->device + l->rows);
    step->ids = (const uint32_t *)(const void *)(step->device + l->ids);
    step->spans = (const skv_cuda_span *)(const void *)(step->device + l->spans);
    step->n_spans = spec->n_spans;
}

static void list_set(skv_backend_step *step, skv_row_set which, const skv_set_spec *spec,
                     const layout *l)
{
    const size_t at_rows = l->sets[which], at_items = l->items[which];
    uint32_t *rows = (uint32_t *)(void *)(step->host + at_rows);
    skv_cuda_item *items = (skv_cuda_item *)(void *)(step->host + at_items);
    const size_t n_items = which == SKV_SET_WANTED ? 0 : spec->n_items;
    skv_cuda_set set = {.n_rows = spec->n_rows, .n_items = n_items};
    if (spec->rows) {
        memcpy(rows, spec->rows, spec->n_rows * sizeof *rows);
        set.host_rows = rows;
        set.rows = (const uint32_t *)(const void *)(step->device + at_rows);
    }
    for (size_t i = 0; i < n_items; i++) {
        const skv_attention_item *item = &spec->items[i];
        const skv_table *table = step->tables[item->span];
        items[i] = (skv_cuda_item){.table = table ? table->at : NULL,
                                   .row0 = (uint32_t)item->row0,
                                   .n_q = (uint32_t)item->n_q,
                                   .n_past = (uint32_t)item->n_past};
    }
    set.host_items = items;
    set.items = (const skv_cuda_item *)(const void *)(step->device + at_items);
    step->sets[which] = set;
}

static void describe(skv_cuda_backend *be, skv_backend_step *step,
                     const skv_backend_step_spec *spec)
{
    step->serial = ++be->n_described;
    step->n_rows = step->longest_span = 0;
    for (size_t s = 0; s < spec->n_spans; s++) {
        step->n_rows += spec->spans[s].n;
        step->longest_span = skv_max_size(step->longest_span, spec->spans[s].n);
    }
    assert(step->n_rows <= step->limits.max_rows);
    const layout l = lay_out(&step->limits, step->n_rows);
    list_rows(step, spec, &l);
    for (skv_row_set i = 0; i < SKV_SET_CHOSEN; i++) list_set(step, i, &spec->sets[i], &l);
    take_angles(be, step, spec, l.numbers);
    skv_cuda_put(&be->device, step->device, step->host, l.described);
}

/* Decoding, with or without drafts. A short end of a prompt may look so too: its launches come once
 * and are not recorded. */
static bool may_repeat(const skv_backend_step *step, const skv_backend_step_spec *spec)
{
    bool may = step->n_rows <= RECORDED_ROWS;
    for (size_t s = 0; s < spec->n_spans; s++) may = may && spec->spans[s].n <= RECORDED_OF_SPAN;
    return may;
}

/* Areas that gather has moved are undefined where a step begins beside no other. They go back, so
 * that steps of a shape have the same arguments. */
static void move_back(skv_cuda_backend *be)
{
    for (skv_area *a = be->moving_areas; a; a = a->next) {
        if (a->is_swapped) skv_cuda_swap(a);
    }
}

static skv_status step_begin(skv_backend *base, skv_backend_step *step,
                             const skv_backend_step_spec *spec, skv_error *err)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    if (be->n_under_way++ == 0) move_back(be);
    describe(be, step, spec);
    skv_cuda_release(&be->device);
    if (may_repeat(step, spec)) skv_cuda_graphs_begin(&be->device);
    if (be->device.failed == SKV_OK) return SKV_OK;
    return skv_fail(err, be->device.failed, "%s", be->device.error.text);
}

/* Waits: the device may still read the description before this one. */
static void step_change(skv_backend *base, skv_backend_step *step,
                        const skv_backend_step_spec *spec)
{
    skv_cuda_settle(&skv_cuda_of(base)->device);
    describe(skv_cuda_of(base), step, spec);
}

static void start(skv_backend *be)
{
    skv_cuda_flush(&skv_cuda_of(be)->device);
}

static skv_status step_wait(skv_backend *base, skv_backend_step *step, skv_error *err)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    (void)step;
    be->n_wishes = 0;
    if (be->n_under_way > 0) be->n_under_way--;
    return skv_cuda_wait(&be->device, err);
}

/* ---- sets ---- */

static uint32_t row_of(const uint32_t *rows, size_t i)
{
    return rows ? rows[i] : (uint32_t)i;
}

/* x is left with rows `to` [n_to] of those it has, which are rows `from`: to its other memory, and
 * the two are swapped. `places` has room for as many numbers. */
static void leave_rows(skv_cuda_backend *be, skv_rows x, size_t n, const uint32_t *from,
                       const uint32_t *to, size_t n_to, uint32_t *places)
{
    skv_cuda_rows y = skv_cuda_rows_of(x);
    const skv_cuda_rows was = y;
    for (size_t i = 0, j = 0; i < n_to; i++, j++) {
        while (row_of(from, j) != row_of(to, i)) j++;
        places[i] = (uint32_t)j;
    }
    assert(x.area->other);
    y.at = x.area->other + ((unsigned char *)was.at - x.area->at);
    skv_cuda_put(&be->device, be->list, places, n_to * sizeof *places);
    skv_cuda_move(be, (skv_cuda_move_args){.y = y, .x = was, .rows = be->list, .factor = 1}, n_to,
                  n);
    skv_cuda_swap(x.area);
}

static void gather(skv_backend *base, const skv_backend_step *step, skv_rows x, size_t n,
                   skv_row_set from, skv_row_set to)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    leave_rows(be, x, n, step->sets[from].host_rows, step->sets[to].host_rows,
               step->sets[to].n_rows, be->host_list);
}

/* Waits: the device may still read the rows chosen before. */
static void step_choose(skv_backend *base, skv_backend_step *step, skv_row_set from,
                        const skv_set_spec *chosen, skv_rows x, size_t n)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const layout l = lay_out(&step->limits, step->n_rows);
    const size_t at = l.sets[SKV_SET_CHOSEN];
    skv_cuda_settle(&be->device);
    leave_rows(be, x, n, step->sets[from].host_rows, chosen->rows, chosen->n_rows, be->host_list);
    list_set(step, SKV_SET_CHOSEN, chosen, &l);
    step->serial = ++be->n_described;
    skv_cuda_put(&be->device, step->device + at, step->host + at, l.end - at);
}

/* ---- embeddings ---- */

static skv_bytes embedding_bytes(const skv_backend *be, size_t n_rows, size_t K)
{
    size_t n;
    const size_t size = ((const skv_cuda_backend *)be)->activations == SKV_CUDA_F32 ? 4 : 2;
    const bool good = skv_size_mul(n_rows, K, &n) && skv_size_mul(n, size, &n);
    return (skv_bytes){.device = good ? n : SIZE_MAX};
}

static void embedding_free(skv_backend *be, skv_embedding *table)
{
    if (!table) return;
    skv_cuda_delete(&skv_cuda_of(be)->device, table->at);
    skv_free(table);
}

static skv_status embedding_create(skv_backend *be, const skv_row_source *source, size_t K,
                                   size_t first_id, skv_embedding **out, skv_error *err)
{
    void *at = NULL;
    const size_t n_bytes = embedding_bytes(be, source->n_rows, K).device;
    SKV_REQUIRE(n_bytes < SIZE_MAX && source->n_rows <= UINT32_MAX, err, SKV_RANGE,
                "embeddings: %zu rows of %zu", source->n_rows, K);
    skv_embedding *table = skv_alloc_zero(1, sizeof *table);
    SKV_REQUIRE(table, err, SKV_MEMORY, "embeddings: out of memory");
    *table = (skv_embedding){.n_rows = source->n_rows, .K = K, .first_id = first_id};
    skv_status status = skv_cuda_new(&skv_cuda_of(be)->device, n_bytes, &at, err);
    table->at = at;
    if (status == SKV_OK) status = skv_cuda_table_load(skv_cuda_of(be), source, K, at, err);
    if (status != SKV_OK) {
        embedding_free(be, table);
        return status;
    }
    *out = table;
    return SKV_OK;
}

static void embed(skv_backend *base, const skv_backend_step *step, const skv_embedding *table,
                  skv_rows x, float scale)
{
    const uint32_t type = skv_cuda_of(base)->activations;
    const skv_cuda_move_args args = {.y = skv_cuda_rows_of(x),
                                     .x = skv_cuda_scratch(table->at, type, table->K),
                                     .rows = step->ids,
                                     .first = (uint32_t)table->first_id,
                                     .n_first = (uint32_t)table->n_rows,
                                     .factor = scale};
    skv_cuda_move(skv_cuda_of(base), args, step->n_rows, table->K);
}

void skv_cuda_fill_steps(skv_backend *table)
{
    table->angles_create = angles_create;
    table->angles_free = angles_free;
    table->step_create = step_create;
    table->step_free = step_free;
    table->step_bytes = step_bytes;
    table->step_begin = step_begin;
    table->step_change = step_change;
    table->step_choose = step_choose;
    table->start = start;
    table->step_wait = step_wait;
    table->gather = gather;
    table->embedding_bytes = embedding_bytes;
    table->embedding_create = embedding_create;
    table->embedding_free = embedding_free;
    table->embed = embed;
}
