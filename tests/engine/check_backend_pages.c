/* Keys and values in pages: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "check_backend_kv.h"
#include "kernels/kernels.h"
#include "kernels/kv_page.h"

skv_kv_type check_draw_type(backend_check *c)
{
    static const skv_kv_type types[] = {SKV_KV_TYPE_F32, SKV_KV_TYPE_BF16, SKV_KV_TYPE_FP8,
                                        SKV_KV_TYPE_INT8};
    skv_kv_type type;
    do {
        type = types[check_below(c, 4)];
    } while (!check_fits(c, (skv_backend_shape){.kv = type, .weights = check_weights(c)}));
    return type;
}

/* Whatever the type of pages. */
static bool fits_heads(backend_check *c, size_t Dh)
{
    for (int kv = 0; kv <= SKV_KV_TYPE_INT8; kv++) {
        skv_backend_shape shape = {.kv = (skv_kv_type)kv, .weights = check_weights(c)};
        if (!check_fits(c, shape)) continue;
        shape.least_head_dim = Dh;
        if (!check_fits(c, shape)) return false;
    }
    return true;
}

size_t check_draw_head_dim(backend_check *c)
{
    size_t Dh;
    do {
        Dh = 8 * check_between(c, 1, CHECK_HEAD_DIM / 8);
    } while (!fits_heads(c, Dh));
    return Dh;
}

/* ---- pages and tables ---- */

static void shuffle(backend_check *c, uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        const size_t j = check_below(c, i);
        const uint32_t page = order[i - 1];
        order[i - 1] = order[j];
        order[j] = page;
    }
}

/* Up to two heads lie beside each other in a page, whatever their slots. */
memory *check_draw_memory(backend_check *c, skv_kv_type type, size_t n_heads, size_t head_dim)
{
    const size_t head_bytes = skv_kv_page_bytes(type, head_dim), n_beside = check_between(c, 1, 2);
    const size_t n_before = check_below(c, OTHERS + 1), n_after = check_below(c, OTHERS + 1);
    memory *m = check_host(c, sizeof *m);
    m->type = type;
    m->n_heads = n_heads;
    m->head_dim = head_dim;
    m->page_bytes = n_beside * head_bytes;
    m->track0 = n_before;
    m->n_tracks = n_before + n_heads + n_after;
    for (size_t t = 0; t < m->n_tracks; t++) {
        m->tracks[t] = (skv_track_spec){t / n_beside, t % n_beside * head_bytes, head_dim};
    }
    m->n_bundles = skv_ceil_div(m->n_tracks, n_beside);
    m->pool = check_pool(c, m->page_bytes, POOL);
    m->host = check_host(c, POOL * m->page_bytes);
    shuffle(c, m->order, POOL);
    const size_t track0[] = {0, n_before, n_before + n_heads, m->n_tracks};
    m->slots = check_slots(
        c, &(skv_slots_spec){.pool = m->pool,
                             .type = type,
                             .n_slots = 3,
                             .n_bundles = m->n_bundles,
                             .track0 = check_list(c, track0, sizeof track0),
                             .tracks = check_list(c, m->tracks, m->n_tracks * sizeof *m->tracks),
                             .max_pages = STRIDE});
    return m;
}

static uint32_t take_page(memory *m)
{
    return m->order[m->n_taken++];
}

unsigned char *check_host_page(const memory *m, uint32_t page)
{
    return m->host + page * m->page_bytes;
}

/* Where the rows of a head of the slot begin on the host. */
static unsigned char *check_host_rows(const sequence *s, size_t h, size_t r)
{
    const skv_track_spec *track = &s->m->tracks[s->m->track0 + h];
    return check_host_page(s->m, s->pages[track->bundle][r / SKV_PAGE_ROWS]) + track->offset;
}

size_t check_dropped_of(const sequence *s, size_t h)
{
    return s->dropped[s->m->track0 + h];
}

static void write_entries(backend_check *c, const sequence *s, size_t bundle, size_t first,
                          size_t end)
{
    skv_backend *be = check_backend_of(c);
    const uint32_t *pages = s->pages[bundle] + first;
    if (first == end) return;
    be->table_write(be, s->table, bundle, first,
                    check_list(c, pages, (end - first) * sizeof *pages), end - first);
}

/* Entries change piece by piece, and pages that were given up come back. */
void check_write_table(backend_check *c, const sequence *s)
{
    skv_backend *be = check_backend_of(c);
    for (size_t b = 0; b < s->m->n_bundles; b++) {
        const size_t n = s->n_pages[b], cut = check_below(c, n + 1);
        write_entries(c, s, b, cut, n);
        if (check_one_in(c, 3) && n > cut) {
            be->table_write(be, s->table, b, cut, NULL, n - cut);
            write_entries(c, s, b, cut, n);
        }
        write_entries(c, s, b, 0, cut);
    }
    const size_t cut = check_below(c, s->m->n_tracks), n = s->m->n_tracks - cut;
    size_t lost[TRACKS];
    for (size_t t = 0; t < TRACKS; t++) lost[t] = 7;
    be->table_dropped(be, s->table, 0, check_list(c, lost, sizeof lost), s->m->n_tracks);
    be->table_dropped(be, s->table, cut, check_list(c, s->dropped + cut, n * sizeof *s->dropped),
                      n);
    if (cut > 0) {
        be->table_dropped(be, s->table, 0, check_list(c, s->dropped, cut * sizeof *s->dropped),
                          cut);
    }
    check_done(c);
}

/* Pages for n_rows rows of each head, less those that it has lost: up to n_droppable. */
sequence *check_draw_sequence(backend_check *c, memory *m, size_t n_rows, size_t n_droppable)
{
    sequence *s = check_host(c, sizeof *s);
    s->m = m;
    s->table = check_table(c, m->slots);
    for (size_t t = 0; t < m->n_tracks; t++) {
        size_t *n = &s->n_pages[m->tracks[t].bundle];
        s->dropped[t] = check_below(c, n_droppable + 1);
        *n = skv_max_size(*n, skv_ceil_div(n_rows - s->dropped[t], SKV_PAGE_ROWS));
    }
    for (size_t b = 0; b < m->n_bundles; b++) {
        for (size_t p = 0; p < s->n_pages[b]; p++) s->pages[b][p] = take_page(m);
    }
    check_write_table(c, s);
    return s;
}

/* What the pages of a sequence hold becomes what the host believes. */
static void put_pages(backend_check *c, const sequence *s)
{
    skv_backend *be = check_backend_of(c);
    const memory *m = s->m;
    for (size_t b = 0; b < m->n_bundles; b++) {
        const size_t n = s->n_pages[b];
        unsigned char *host = check_host(c, n * m->page_bytes);
        for (size_t p = 0; p < n; p++) {
            memcpy(host + p * m->page_bytes, check_host_page(m, s->pages[b][p]), m->page_bytes);
        }
        be->pages_write(be, m->pool, check_list(c, s->pages[b], n * sizeof *s->pages[b]), n,
                        check_list(c, host, n * m->page_bytes));
        check_done(c);
    }
}

/* Pages [n] to host [n][page_bytes]. */
static void read_pages(backend_check *c, const memory *m, const uint32_t *pages, size_t n,
                       unsigned char *host)
{
    skv_backend *be = check_backend_of(c);
    skv_status status = SKV_OK;
    const skv_ticket ticket =
        be->pages_read(be, m->pool, check_list(c, pages, n * sizeof *pages), n, host);
    check_done(c);
    if (ticket == 0 || be->pages_done(be, ticket, true, &status)) {
        check_number(c, 0, 1, status, SKV_OK, 0);
    } else {
        check_number(c, 0, 1, 0, 1, 0); /* it was to wait */
    }
}

void check_get_pages(backend_check *c, const sequence *s)
{
    const memory *m = s->m;
    for (size_t b = 0; b < m->n_bundles; b++) {
        for (size_t p = 0; p < s->n_pages[b]; p++) {
            read_pages(c, m, &s->pages[b][p], 1, check_host_page(m, s->pages[b][p]));
        }
    }
}

/* Random rows in the pages of every head of the slot. */
void check_fill_sequence(backend_check *c, sequence *s, size_t n_rows)
{
    const memory *m = s->m;
    float k[CHECK_HEAD_DIM], v[CHECK_HEAD_DIM];
    for (size_t h = 0; h < m->n_heads; h++) {
        for (size_t r = 0; r < n_rows - check_dropped_of(s, h); r++) {
            for (size_t d = 0; d < m->head_dim; d++) k[d] = (float)check_normal(c);
            for (size_t d = 0; d < m->head_dim; d++) v[d] = (float)check_normal(c);
            skv_kv_store_ref(check_host_rows(s, h, r), m->type, r % SKV_PAGE_ROWS, k, v,
                             m->head_dim);
        }
    }
    put_pages(c, s);
}

void check_load_row(const sequence *s, size_t h, size_t r, float *k, float *v)
{
    skv_kv_load_ref(check_host_rows(s, h, r), s->m->type, r % SKV_PAGE_ROWS, k, v, s->m->head_dim);
}

/* Pages move as they were when they were asked for. */
void check_pages(backend_check *c)
{
    enum { N = 12 };
    check_begin(c, "pages");
    skv_backend *be = check_backend_of(c);
    const size_t n_bytes = 64 * check_between(c, 1, 40), n = check_between(c, 1, N);
    const memory m = {.page_bytes = n_bytes, .pool = check_pool(c, n_bytes, 3 * N)};
    uint32_t order[3 * N];
    unsigned char *zeros = check_host(c, n * n_bytes), *host = check_host(c, n * n_bytes),
                  *got = check_host(c, n * n_bytes);
    shuffle(c, order, 3 * N);
    const uint32_t *a = order, *b = order + N;
    const size_t list = n * sizeof *order;
    read_pages(c, &m, a, n, got);
    check_same(c, got, zeros, n * n_bytes);
    for (size_t i = 0; i < n * n_bytes; i++) host[i] = (unsigned char)check_below(c, 256);
    be->pages_write(be, m.pool, check_list(c, a, list), n, check_list(c, host, n * n_bytes));
    check_done(c);
    be->pages_copy(be, m.pool, check_list(c, b, list), check_list(c, a, list), n);
    check_done(c);
    check_begin(c, "pages_read");
    skv_status status = SKV_OK;
    const skv_ticket ticket = be->pages_read(be, m.pool, check_list(c, a, list), n, got);
    be->pages_write(be, m.pool, check_list(c, a, list), n, check_list(c, zeros, n * n_bytes));
    check_done(c);
    if (ticket && !be->pages_done(be, ticket, true, &status)) check_number(c, 0, 1, 0, 1, 0);
    check_number(c, 0, 1, status, SKV_OK, 0);
    check_same(c, got, host, n * n_bytes);
    read_pages(c, &m, a, n, got);
    check_same(c, got, zeros, n * n_bytes);
    check_begin(c, "pages_copy");
    read_pages(c, &m, b, n, got);
    check_same(c, got, host, n * n_bytes);
    check_begin(c, "page_map");
    for (size_t i = 0; i < n; i++) {
        const void *page = be->page_map(be, m.pool, b[i]);
        check_same(c, page, host + i * n_bytes, n_bytes);
        be->page_unmap(be, page);
    }
    read_pages(c, &m, order + 2 * N, n, got); /* pages that nothing names are as they were */
    check_same(c, got, zeros, n * n_bytes);
}

/* ---- compaction ---- */

/* Heads of a sequence keep some rows each: in place, where a new page does not take the place of a
 * shared one. */
typedef struct compacting {
    sequence *from;
    uint32_t to[TRACKS][STRIDE];
    uint32_t *rows[KV_HEADS * COPIES];
    size_t n[KV_HEADS * COPIES];
} compacting;

static void draw_compacting(backend_check *c, compacting *x, size_t n_rows)
{
    memory *m = x->from->m;
    const bool apart = check_one_in(c, 3);
    for (size_t b = 0; b < m->n_bundles; b++) {
        for (size_t p = 0; p < STRIDE; p++) {
            const bool stays = !apart && p < x->from->n_pages[b] && !check_one_in(c, 3);
            x->to[b][p] = stays ? x->from->pages[b][p] : take_page(m);
        }
    }
    for (size_t h = 0; h < m->n_heads; h++) {
        x->n[h] = check_between(c, 1, n_rows - check_dropped_of(x->from, h));
        x->rows[h] = check_ascending(c, x->n[h], n_rows - check_dropped_of(x->from, h));
    }
}

static void run_compacting(backend_check *c, const compacting *x)
{
    skv_backend *be = check_backend_of(c);
    const memory *m = x->from->m;
    skv_compact_job jobs[KV_HEADS * COPIES];
    for (size_t h = 0; h < m->n_heads; h++) {
        const skv_track_spec *track = &m->tracks[m->track0 + h];
        const uint32_t *rows = x->rows[h];
        const size_t n_to = skv_ceil_div(x->n[h], SKV_PAGE_ROWS);
        const size_t n_from = rows[x->n[h] - 1] / SKV_PAGE_ROWS + 1;
        jobs[h] = (skv_compact_job){
            .to = check_list(c, x->to[track->bundle], n_to * sizeof *rows),
            .from = check_list(c, x->from->pages[track->bundle], n_from * sizeof *rows),
            .to_offset = track->offset,
            .from_offset = track->offset,
            .head_dim = track->head_dim,
            .rows = check_list(c, rows, x->n[h] * sizeof *rows),
            .n = x->n[h]};
    }
    be->pages_compact(be, m->pool, m->type, check_list(c, jobs, m->n_heads * sizeof *jobs),
                      m->n_heads);
    check_done(c);
}

/* Rows of a head as they were, against those in the pages that it has now. */
static void check_compacted(backend_check *c, const compacting *x, size_t h,
                            const unsigned char *now)
{
    const memory *m = x->from->m;
    const skv_track_spec *track = &m->tracks[m->track0 + h];
    for (size_t i = 0; i < x->n[h]; i++) {
        float a[2][CHECK_HEAD_DIM], b[2][CHECK_HEAD_DIM];
        const uint32_t page = x->to[track->bundle][i / SKV_PAGE_ROWS];
        skv_kv_load_ref(now + page * m->page_bytes + track->offset, m->type, i % SKV_PAGE_ROWS,
                        a[0], a[1], m->head_dim);
        check_load_row(x->from, h, x->rows[h][i], b[0], b[1]);
        for (int which = 0; which < 2; which++) {
            check_same(c, a[which], b[which], m->head_dim * sizeof a[0][0]);
        }
    }
}

void check_compact(backend_check *c)
{
    check_begin(c, "pages_compact");
    const size_t n_rows = check_between(c, 1, CHECK_KV_ROWS);
    const size_t Dh = check_draw_head_dim(c);
    memory *m =
        check_draw_memory(c, check_draw_type(c), check_between(c, 1, KV_HEADS * COPIES), Dh);
    compacting x = {.from = check_draw_sequence(c, m, n_rows, check_one_in(c, 2) ? n_rows - 1 : 0)};
    check_fill_sequence(c, x.from, n_rows);
    draw_compacting(c, &x, n_rows);
    run_compacting(c, &x);
    unsigned char *now = check_host(c, POOL * m->page_bytes);
    for (size_t i = 0; i < m->n_taken; i++) {
        read_pages(c, m, m->order + i, 1, now + m->order[i] * m->page_bytes);
    }
    for (size_t h = 0; h < m->n_heads; h++) check_compacted(c, &x, h, now);
    for (size_t b = 0; b < m->n_bundles; b++) { /* others keep what they have */
        for (size_t p = 0; p < x.from->n_pages[b]; p++) {
            const uint32_t page = x.from->pages[b][p];
            if (page == x.to[b][p]) continue;
            check_same(c, now + page * m->page_bytes, check_host_page(m, page), m->page_bytes);
        }
    }
}
