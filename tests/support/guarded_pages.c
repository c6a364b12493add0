/* Pages, slots and tables of the guarded back end: see guarded_backend.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guarded_state.h"

/* ---- pages ---- */

static const skv_page_pool *pool_of(const guarded *g, const skv_page_pool *pool)
{
    if (!pool || pool->of != g) guarded_die("a pool of another back end");
    return pool;
}

static void check_numbers(const skv_page_pool *pool, const uint32_t *pages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (pages[i] >= pool->n_pages) guarded_die("a page beyond the end of its pool");
    }
}

static void check_one_holder(const skv_page_pool *pool, uint32_t page)
{
    if (pool->holders[page] > 1) guarded_die("a write to a page that two tables hold");
}

static skv_status guarded_pool_create(skv_backend *base, size_t page_bytes, size_t n_pages,
                                      skv_page_pool **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_page_pool *inner;
    SKV_TRY(g->cpu->pool_create(g->cpu, page_bytes, n_pages, &inner, err));
    skv_page_pool *pool = guarded_take(sizeof *pool);
    *pool = (skv_page_pool){g, inner, page_bytes, n_pages,
                            __real_calloc(n_pages + 1, sizeof *pool->holders)};
    if (!pool->holders) guarded_die("no memory");
    g->n_pools++;
    *out = pool;
    return SKV_OK;
}

static skv_bytes guarded_pool_bytes(const skv_backend *base, size_t page_bytes, size_t n_pages)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->pool_bytes(cpu, page_bytes, n_pages);
}

static void guarded_pool_free(skv_backend *base, skv_page_pool *pool)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!pool) return;
    guarded_run(g);
    g->cpu->pool_free(g->cpu, pool_of(g, pool)->inner);
    free(pool->holders);
    free(pool);
    g->n_pools--;
}

/* Operations on lists of pages. */
typedef struct paged {
    skv_page_pool *pool;
    const uint32_t *to, *from;
    size_t n;
    const skv_compact_job *jobs;
    skv_kv_type type;
    void *host;
} paged;

static const uint32_t *keep_pages(guarded *g, const uint32_t *pages, size_t n)
{
    return guarded_keep(g, pages, n * sizeof *pages);
}

static void replay_copy(guarded *g, void *args)
{
    const paged *p = args;
    g->cpu->pages_copy(g->cpu, p->pool, p->to, p->from, p->n);
}

static void guarded_pages_copy(skv_backend *base, skv_page_pool *pool, const uint32_t *to,
                               const uint32_t *from, size_t n)
{
    guarded *g LEAVES = guarded_begin(base);
    check_numbers(pool_of(g, pool), to, n);
    check_numbers(pool, from, n);
    for (size_t i = 0; i < n; i++) {
        check_one_holder(pool, to[i]);
        for (size_t j = 0; j < n; j++) {
            if (to[i] == from[j]) guarded_die("a page that is copied and overwritten at once");
        }
    }
    const paged p = {
        .pool = pool->inner, .to = keep_pages(g, to, n), .from = keep_pages(g, from, n), .n = n};
    guarded_later(g, replay_copy, &p, sizeof p);
}

static void check_job(const skv_page_pool *pool, const skv_compact_job *job, size_t head_bytes)
{
    if (job->n == 0) guarded_die("a head that keeps nothing is compacted");
    if (job->to_offset + head_bytes > pool->page_bytes ||
        job->from_offset + head_bytes > pool->page_bytes) {
        guarded_die("a head beyond the end of its page");
    }
    check_numbers(pool, job->to, (job->n + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS);
    check_numbers(pool, job->from, job->rows[job->n - 1] / SKV_PAGE_ROWS + 1);
    for (size_t i = 0; i < job->n; i++) {
        if (i > 0 && job->rows[i] <= job->rows[i - 1]) guarded_die("rows that do not ascend");
        check_one_holder(pool, job->to[i / SKV_PAGE_ROWS]);
    }
}

/* What jobs write nobody else reads or writes. */
static void check_jobs_apart(const skv_compact_job *a, const skv_compact_job *b)
{
    const size_t n_to = (a->n + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS;
    const size_t n_other = (b->n + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS;
    const size_t n_from = b->rows[b->n - 1] / SKV_PAGE_ROWS + 1;
    for (size_t i = 0; i < n_to; i++) {
        for (size_t j = 0; j < n_other; j++) {
            if (a->to[i] == b->to[j] && a->to_offset == b->to_offset) {
                guarded_die("two heads are compacted into one");
            }
        }
        for (size_t j = 0; j < n_from; j++) {
            if (a->to[i] == b->from[j] && a->to_offset == b->from_offset) {
                guarded_die("a head is compacted into rows of another");
            }
        }
    }
}

/* Jobs with their lists. */
static const skv_compact_job *keep_jobs(guarded *g, const skv_compact_job *jobs, size_t n)
{
    skv_compact_job *out = guarded_keep(g, jobs, n * sizeof *jobs);
    for (size_t i = 0; i < n; i++) {
        skv_compact_job *job = &out[i];
        job->from = keep_pages(g, job->from, job->rows[job->n - 1] / SKV_PAGE_ROWS + 1);
        job->to = keep_pages(g, job->to, (job->n + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS);
        job->rows = keep_pages(g, job->rows, job->n);
    }
    return out;
}

static void replay_compact(guarded *g, void *args)
{
    const paged *p = args;
    g->cpu->pages_compact(g->cpu, p->pool, p->type, p->jobs, p->n);
}

static void guarded_pages_compact(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                                  const skv_compact_job *jobs, size_t n)
{
    guarded *g LEAVES = guarded_begin(base);
    pool_of(g, pool);
    for (size_t i = 0; i < n; i++) {
        check_job(pool, &jobs[i], skv_kv_page_bytes(type, jobs[i].head_dim));
        for (size_t j = 0; j < n; j++) {
            if (i != j) check_jobs_apart(&jobs[i], &jobs[j]);
        }
    }
    const paged p = {.pool = pool->inner, .type = type, .jobs = keep_jobs(g, jobs, n), .n = n};
    guarded_later(g, replay_compact, &p, sizeof p);
}

static void replay_read(guarded *g, void *args)
{
    const paged *p = args;
    (void)g->cpu->pages_read(g->cpu, p->pool, p->from, p->n, p->host);
}

static size_t pages_for(size_t n_rows)
{
    return (n_rows + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS;
}

static void check_turn(const guarded *g, const skv_page_pool *pool, const skv_turn_job *job,
                       size_t head_bytes)
{
    const size_t n_to = pages_for(job->to_row + job->n);
    const size_t n_from = pages_for(job->from_row + job->n);
    if (job->n == 0) guarded_die("no rows are turned");
    if (job->to_row >= SKV_PAGE_ROWS || job->from_row >= SKV_PAGE_ROWS) {
        guarded_die("a page without a row that is turned");
    }
    if (job->offset + head_bytes > pool->page_bytes) guarded_die("a head beyond its page's end");
    if (job->angles->of != g) guarded_die("angles of another back end");
    if (2 * job->angles->n > job->head_dim) guarded_die("more angles than a head has pairs");
    check_numbers(pool, job->to, n_to);
    check_numbers(pool, job->from, n_from);
    for (size_t i = 0; i < n_to; i++) {
        check_one_holder(pool, job->to[i]);
        for (size_t j = 0; j < n_from; j++) {
            if (job->to[i] == job->from[j]) guarded_die("a page that is turned into itself");
        }
    }
}

/* What jobs write no other one writes or reads. */
static void check_turns_apart(const skv_turn_job *a, const skv_turn_job *b)
{
    if (a->offset != b->offset) return;
    for (size_t i = 0; i < pages_for(a->to_row + a->n); i++) {
        for (size_t j = 0; j < pages_for(b->to_row + b->n); j++) {
            if (a->to[i] == b->to[j]) guarded_die("two heads are turned into one");
        }
        for (size_t j = 0; j < pages_for(b->from_row + b->n); j++) {
            if (a->to[i] == b->from[j]) guarded_die("a head is turned into rows of another");
        }
    }
}

typedef struct turned {
    skv_page_pool *pool; /* the inner one's */
    skv_kv_type type;
    const skv_turn_job *jobs; /* [n], kept */
    size_t n;
} turned;

/* Jobs with their lists, as the inner back end gets them. */
static const skv_turn_job *keep_turns(guarded *g, const skv_turn_job *jobs, size_t n)
{
    skv_turn_job *out = guarded_keep(g, jobs, n * sizeof *jobs);
    for (size_t i = 0; i < n; i++) {
        skv_turn_job *job = &out[i];
        job->from = keep_pages(g, job->from, pages_for(job->from_row + job->n));
        job->to = keep_pages(g, job->to, pages_for(job->to_row + job->n));
        job->angles = job->angles->inner;
    }
    return out;
}

static void replay_turn(guarded *g, void *args)
{
    const turned *t = args;
    g->cpu->pages_turn(g->cpu, t->pool, t->type, t->jobs, t->n);
}

static void guarded_pages_turn(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                               const skv_turn_job *jobs, size_t n)
{
    guarded *g LEAVES = guarded_begin(base);
    pool_of(g, pool);
    for (size_t i = 0; i < n; i++) {
        check_turn(g, pool, &jobs[i], skv_kv_page_bytes(type, jobs[i].head_dim));
        for (size_t j = 0; j < n; j++) {
            if (i != j) check_turns_apart(&jobs[i], &jobs[j]);
        }
    }
    const turned t = {.pool = pool->inner, .type = type, .jobs = keep_turns(g, jobs, n), .n = n};
    guarded_later(g, replay_turn, &t, sizeof t);
}

static skv_ticket guarded_pages_read(skv_backend *base, skv_page_pool *pool, const uint32_t *pages,
                                     size_t n, void *host)
{
    guarded *g LEAVES = guarded_inside(base);
    reading *r = g->readings;
    check_numbers(pool_of(g, pool), pages, n);
    while (r < g->readings + MAX_READS && r->ticket) r++;
    if (r == g->readings + MAX_READS) guarded_die("too many pages are read at a time");
    const size_t n_bytes = n * pool->page_bytes;
    *r = (reading){++g->last_ticket, guarded_take(n_bytes), host, n_bytes, false};
    const paged p = {.pool = pool->inner, .from = keep_pages(g, pages, n), .n = n, .host = r->copy};
    guarded_later(g, replay_read, &p, sizeof p);
    memset(host, NONSENSE, n_bytes);
    return r->ticket;
}

static bool guarded_pages_done(skv_backend *base, skv_ticket ticket, bool wait_for_it,
                               skv_status *status)
{
    guarded *g LEAVES = guarded_inside(base);
    reading *r = g->readings;
    *status = SKV_OK;
    if (ticket == 0) return true;
    while (r < g->readings + MAX_READS && r->ticket != ticket) r++;
    if (r == g->readings + MAX_READS) guarded_die("pages that nobody has asked for");
    if (wait_for_it) guarded_wait(g);
    if (!wait_for_it && !r->asked) {
        r->asked = true;
        return false;
    }
    guarded_run(g);
    memcpy(r->host, r->copy, r->n_bytes);
    free(r->copy);
    r->ticket = 0;
    return true;
}

static void replay_write(guarded *g, void *args)
{
    const paged *p = args;
    g->cpu->pages_write(g->cpu, p->pool, p->to, p->n, p->host);
}

static void guarded_pages_write(skv_backend *base, skv_page_pool *pool, const uint32_t *pages,
                                size_t n, const void *host)
{
    guarded *g LEAVES = guarded_inside(base);
    check_numbers(pool_of(g, pool), pages, n);
    for (size_t i = 0; i < n; i++) check_one_holder(pool, pages[i]);
    const paged p = {.pool = pool->inner,
                     .to = keep_pages(g, pages, n),
                     .n = n,
                     .host = guarded_keep(g, host, n * pool->page_bytes)};
    guarded_later(g, replay_write, &p, sizeof p);
}

static const void *guarded_page_map(skv_backend *base, skv_page_pool *pool, uint32_t page)
{
    guarded *g LEAVES = guarded_inside(base);
    page_view *v = g->views;
    guarded_wait(g);
    check_numbers(pool_of(g, pool), &page, 1);
    while (v < g->views + MAX_MAPS && v->at) v++;
    if (v == g->views + MAX_MAPS) guarded_die("too many pages are mapped at a time");
    void *at = __real_mmap(NULL, pool->page_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) guarded_die("no memory");
    *v = (page_view){at, pool->page_bytes};
    const void *inner = g->cpu->page_map(g->cpu, pool->inner, page);
    memcpy(v->at, inner, v->n_bytes);
    g->cpu->page_unmap(g->cpu, inner);
    (void)mprotect(v->at, v->n_bytes, PROT_READ);
    return v->at;
}

static void guarded_page_unmap(skv_backend *base, const void *host)
{
    guarded *g LEAVES = guarded_inside(base);
    page_view *v = g->views;
    while (v < g->views + MAX_MAPS && (!host || v->at != host)) v++;
    if (v == g->views + MAX_MAPS) guarded_die("what is not mapped is unmapped");
    (void)munmap(v->at, v->n_bytes);
    v->at = NULL;
}

/* ---- slots and tables ---- */

static void *copy_of(const void *from, size_t n_bytes)
{
    return memcpy(guarded_take(n_bytes), from, n_bytes);
}

static skv_status guarded_slots_create(skv_backend *base, const skv_slots_spec *spec,
                                       skv_slots **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_slots_spec inner = *spec;
    inner.pool = pool_of(g, spec->pool)->inner;
    const size_t n_tracks = spec->track0[spec->n_slots];
    for (size_t t = 0; t < n_tracks; t++) {
        const skv_track_spec *track = &spec->tracks[t];
        if (track->bundle >= spec->n_bundles) guarded_die("a head of a bundle that is not there");
        if (track->offset + skv_kv_page_bytes(spec->type, track->head_dim) >
            spec->pool->page_bytes) {
            guarded_die("a head beyond the end of its page");
        }
    }
    skv_slots *slots = guarded_take(sizeof *slots);
    *slots = (skv_slots){.of = g,
                         .pool = spec->pool,
                         .type = spec->type,
                         .n_slots = spec->n_slots,
                         .n_bundles = spec->n_bundles,
                         .n_tracks = n_tracks,
                         .max_pages = spec->max_pages};
    const skv_status status = g->cpu->slots_create(g->cpu, &inner, &slots->inner, err);
    if (status != SKV_OK) {
        free(slots);
        return status;
    }
    slots->track0 = copy_of(spec->track0, (spec->n_slots + 1) * sizeof *spec->track0);
    slots->tracks = copy_of(spec->tracks, n_tracks * sizeof *spec->tracks);
    g->n_slots++;
    *out = slots;
    return SKV_OK;
}

static void guarded_slots_free(skv_backend *base, skv_slots *slots)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!slots) return;
    if (slots->of != g) guarded_die("slots of another back end");
    if (slots->n_tables > 0) guarded_die("slots are freed before their tables");
    g->cpu->slots_free(g->cpu, slots->inner);
    free(slots->track0);
    free(slots->tracks);
    free(slots);
    g->n_slots--;
}

static skv_table *table_of(const guarded *g, skv_table *table)
{
    if (!table || table->of != g) guarded_die("a table of another back end");
    if (g->n_under_way > 0) guarded_die("a table changes within a step");
    return table;
}

static skv_status guarded_table_create(skv_backend *base, const skv_slots *slots, skv_table **out,
                                       skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_table *inner;
    if (slots->of != g) guarded_die("slots of another back end");
    SKV_TRY(g->cpu->table_create(g->cpu, slots->inner, &inner, err));
    const size_t n = slots->n_bundles * slots->max_pages;
    skv_table *table = guarded_take(sizeof *table);
    *table = (skv_table){.of = g,
                         .inner = inner,
                         .slots = (skv_slots *)(uintptr_t)slots,
                         .pages = guarded_take(n * sizeof *table->pages),
                         .dropped = __real_calloc(slots->n_tracks + 1, sizeof *table->dropped)};
    if (!table->dropped) guarded_die("no memory");
    for (size_t i = 0; i < n; i++) table->pages[i] = NO_PAGE;
    table->slots->n_tables++;
    *out = table;
    return SKV_OK;
}

/* An entry becomes a page, or none. */
static void set_entry(skv_table *table, size_t bundle, size_t p, uint32_t page)
{
    uint32_t *entry = &table->pages[bundle * table->slots->max_pages + p];
    uint32_t *holders = table->slots->pool->holders;
    if (*entry != NO_PAGE) holders[*entry]--;
    *entry = page;
    if (page != NO_PAGE) holders[page]++;
}

static void guarded_table_free(skv_backend *base, skv_table *table)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!table) return;
    g->cpu->table_free(g->cpu, table_of(g, table)->inner);
    for (size_t b = 0; b < table->slots->n_bundles; b++) {
        for (size_t p = 0; p < table->slots->max_pages; p++) set_entry(table, b, p, NO_PAGE);
    }
    table->slots->n_tables--;
    free(table->pages);
    free(table->dropped);
    free(table);
}

static void guarded_table_write(skv_backend *base, skv_table *table, size_t bundle, size_t first,
                                const uint32_t *pages, size_t n)
{
    guarded *g LEAVES = guarded_inside(base);
    const skv_slots *slots = table_of(g, table)->slots;
    if (bundle >= slots->n_bundles || first + n > slots->max_pages)
        guarded_die("entries beyond a table");
    if (pages) check_numbers(slots->pool, pages, n);
    for (size_t i = 0; i < n; i++) set_entry(table, bundle, first + i, pages ? pages[i] : NO_PAGE);
    g->cpu->table_write(g->cpu, table->inner, bundle, first, pages, n);
}

static void guarded_table_dropped(skv_backend *base, skv_table *table, size_t track0,
                                  const size_t *dropped, size_t n)
{
    guarded *g LEAVES = guarded_inside(base);
    if (track0 + n > table_of(g, table)->slots->n_tracks)
        guarded_die("heads that a table does not have");
    memcpy(table->dropped + track0, dropped, n * sizeof *dropped);
    g->cpu->table_dropped(g->cpu, table->inner, track0, dropped, n);
}

/* The slots of a table that an operation names, which have this one. */
const skv_slots *guarded_slots_of(const skv_table *table, size_t slot)
{
    if (!table || slot >= table->slots->n_slots) guarded_die("a slot that is not there");
    return table->slots;
}

/* The page with row `row` of the sequence in a track, of which it has lost some. */
static uint32_t page_of(const skv_table *table, size_t track, size_t row)
{
    const skv_slots *slots = table->slots;
    if (row < table->dropped[track]) guarded_die("a row that its head has lost");
    const size_t p = (row - table->dropped[track]) / SKV_PAGE_ROWS;
    if (p >= slots->max_pages) guarded_die("a row beyond the end of its table");
    const uint32_t page = table->pages[slots->tracks[track].bundle * slots->max_pages + p];
    if (page == NO_PAGE) guarded_die("a row whose page is not there");
    return page;
}

/* All rows that tokens [n_past, n_past + n_q) see in a slot have pages. */
void guarded_check_seen(const skv_table *table, size_t slot, size_t n_past, size_t n_q,
                        size_t window)
{
    const skv_slots *slots = table->slots;
    for (size_t t = slots->track0[slot]; t < slots->track0[slot + 1]; t++) {
        const size_t lost = table->dropped[t], end = n_past + n_q;
        size_t first = window > 0 && n_past + 1 > window + lost ? n_past + 1 - window : lost;
        for (; first < end; first += SKV_PAGE_ROWS) (void)page_of(table, t, first);
        (void)page_of(table, t, end - 1);
    }
}

void guarded_check_written(const skv_backend_step *step, size_t slot)
{
    for (size_t s = 0; s < step->n_spans; s++) {
        const skv_backend_span *span = &step->spans[s];
        const skv_slots *slots = span->table->slots;
        for (size_t t = slots->track0[slot]; t < slots->track0[slot + 1]; t++) {
            for (size_t i = 0; i < span->n; i++) {
                check_one_holder(slots->pool, page_of(span->table, t, span->n_past + i));
            }
        }
    }
}

void guarded_add_pages(skv_backend *base)
{
    base->pool_create = guarded_pool_create;
    base->pool_bytes = guarded_pool_bytes;
    base->pool_free = guarded_pool_free;
    base->pages_copy = guarded_pages_copy;
    base->pages_compact = guarded_pages_compact;
    base->pages_turn = guarded_pages_turn;
    base->pages_read = guarded_pages_read;
    base->pages_done = guarded_pages_done;
    base->pages_write = guarded_pages_write;
    base->page_map = guarded_page_map;
    base->page_unmap = guarded_page_unmap;
    base->slots_create = guarded_slots_create;
    base->slots_free = guarded_slots_free;
    base->table_create = guarded_table_create;
    base->table_free = guarded_table_free;
    base->table_write = guarded_table_write;
    base->table_dropped = guarded_table_dropped;
}
