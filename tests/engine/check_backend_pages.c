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
    return types[check_below(c, 4)];
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

static unsigned char *check_host_page(const memory *m, uint32_t page)
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

static void check_get_pages(backend_check *c, const sequence *s)
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

/* ---- store ---- */

/* What a number of a row with this largest magnitude may lose in a page. */
static double page_error(skv_kv_type type, double x, double amax)
{
    switch (type) {
    case SKV_KV_TYPE_BF16: return CHECK_BF16 * fabs(x);
    case SKV_KV_TYPE_FP8: return 0x1.04p-4 * fabs(x) + 1e-5 * amax;
    case SKV_KV_TYPE_INT8: return 1.14 / 254 * amax;
    case SKV_KV_TYPE_F32: break;
    }
    return 0;
}

/* n numbers of a head: what a page may hold of want [n] that was computed with these errors. */
static void page_bounds(skv_kv_type type, const double *want, const double *size, size_t n,
                        double *bound)
{
    double amax = 0;
    for (size_t d = 0; d < n; d++) amax = fmax(amax, fabs(want[d]) + size[d]);
    for (size_t d = 0; d < n; d++) {
        bound[d] = size[d] + page_error(type, fabs(want[d]) + size[d], amax);
    }
}

/* A store: its arguments, and one row's K and V as they are to be. */
typedef struct storing {
    skv_store_args a;
    const float *k, *v, *cosine, *sine, *weight; /* the host's */
    double *want[2], *size[2];                   /* [n_heads * head_dim] K, V */
} storing;

static void want_row(const storing *s, size_t i)
{
    const size_t Dh = s->a.head_dim, half = s->a.n_rot / 2, n = s->a.n_heads * Dh;
    const size_t width = s->a.norm.joined ? n : Dh;
    const float *k = s->k + i * s->a.k.ld, *v = s->v + i * s->a.v.ld;
    float ones[CHECK_HEAD_DIM];
    const skv_norm v_norm = {.eps = s->a.v_eps};
    for (size_t d = 0; d < Dh; d++) ones[d] = 1;
    for (size_t at = 0; at < n; at += width) {
        check_normed(&s->a.norm, s->weight, k + at, width, s->want[0] + at, s->size[0] + at);
    }
    for (size_t at = 0; at < n; at += Dh) {
        check_normed(&v_norm, s->a.v_eps > 0 ? ones : NULL, v + at, Dh, s->want[1] + at,
                     s->size[1] + at);
        for (size_t d = 0; d < half; d++) {
            double *x = s->want[0] + at + d, *e = s->size[0] + at + d, a = x[0], b = x[half];
            const double co = (double)s->cosine[i * half + d], si = (double)s->sine[i * half + d];
            const double ea = e[0], eb = e[half];
            x[0] = a * co - b * si;
            x[half] = b * co + a * si;
            e[0] = ea * fabs(co) + eb * fabs(si) + 2 * CHECK_F32 * (fabs(a * co) + fabs(b * si));
            e[half] = eb * fabs(co) + ea * fabs(si) + 2 * CHECK_F32 * (fabs(b * co) + fabs(a * si));
        }
    }
}

/* Row r of a head: want and size are those of its K and V; NULL: it is to be zero still. */
static void check_page_row(backend_check *c, const sequence *s, size_t h, size_t r,
                           double *const want[2], double *const size[2], size_t at)
{
    float got[2][CHECK_HEAD_DIM];
    double bound[CHECK_HEAD_DIM];
    const size_t Dh = s->m->head_dim;
    check_load_row(s, h, r, got[0], got[1]);
    for (size_t which = 0; which < 2; which++) {
        if (want) page_bounds(s->m->type, want[which] + at, size[which] + at, Dh, bound);
        for (size_t d = 0; d < Dh; d++) {
            const double wanted = want ? want[which][at + d] : 0,
                         most = want ? bound[d] + 1e-38 : 0;
            if (!check_number(c, d, Dh, (double)got[which][d], wanted, most)) return;
        }
    }
}

/* Heads of other slots have nothing. */
static void check_others(backend_check *c, const sequence *s)
{
    const memory *m = s->m;
    const size_t head_bytes = skv_kv_page_bytes(m->type, m->head_dim);
    const unsigned char *zeros = check_host(c, head_bytes);
    for (size_t t = 0; t < m->n_tracks; t++) {
        const skv_track_spec *track = &m->tracks[t];
        if (t >= m->track0 && t < m->track0 + m->n_heads) continue;
        for (size_t p = 0; p < s->n_pages[track->bundle]; p++) {
            check_same(c, check_host_page(m, s->pages[track->bundle][p]) + track->offset, zeros,
                       head_bytes);
        }
    }
}

/* A sequence, of whose rows [first, first + n) were rows i0.. of the operation. */
static void check_stored(backend_check *c, const sequence *s, const storing *what, size_t i0,
                         size_t first, size_t n)
{
    const size_t copies = what->a.n_copies;
    check_get_pages(c, s);
    check_others(c, s);
    for (size_t r = 0; r < first + n; r++) {
        if (r >= first) want_row(what, i0 + r - first);
        for (size_t h = 0; h < s->m->n_heads; h++) {
            if (r < check_dropped_of(s, h)) continue;
            check_page_row(c, s, h, r - check_dropped_of(s, h), r >= first ? what->want : NULL,
                           what->size, h / copies * s->m->head_dim);
        }
    }
}

void check_store(backend_check *c)
{
    check_begin(c, "store");
    const size_t n[2] = {check_between(c, 1, CHECK_ROWS / 2), check_below(c, CHECK_ROWS / 2)};
    const size_t T = n[0] + n[1], first[2] = {check_between(c, 1, 200), check_between(c, 1, 200)};
    const size_t H = check_between(c, 1, KV_HEADS), copies = check_between(c, 1, COPIES);
    const size_t Dh = 8 * check_between(c, 1, CHECK_HEAD_DIM / 8), ld = H * Dh + check_below(c, 9);
    const size_t n_rot = check_one_in(c, 2) ? Dh : 2 * check_between(c, 1, Dh / 2);
    const skv_kv_type type = check_draw_type(c);
    const check_tensor k = check_random(c, T * ld, 1);
    const bool same = check_one_in(c, 4); /* v is k */
    const check_tensor v = same ? k : check_random(c, T * ld, 1);
    const check_tensor cosine = check_random(c, T * n_rot / 2, 1);
    const check_tensor sine = check_random(c, T * n_rot / 2, 1);
    const bool joined = check_one_in(c, 3);
    storing s = {.k = k.host, .v = v.host, .cosine = cosine.host, .sine = sine.host};
    s.a = (skv_store_args){.k = check_rows(k, ld),
                           .v = check_rows(v, ld),
                           .n_rows = T,
                           .n_heads = H,
                           .head_dim = Dh,
                           .n_rot = n_rot,
                           .cos = check_rows(cosine, n_rot / 2),
                           .sin = check_rows(sine, n_rot / 2),
                           .norm = check_norm(c, joined ? H * Dh : Dh, &s.weight),
                           .v_eps = same || check_one_in(c, 3) ? 1e-6f : 0,
                           .slot = SLOT,
                           .n_copies = copies};
    s.a.norm.joined = joined && s.weight;
    if (joined && s.weight && same)
        s.a.norm = (skv_norm){0}, s.weight = NULL; /* v would be normed k */
    memory *m = check_draw_memory(c, type, H * copies, Dh);
    const sequence *both[2];
    const skv_table *tables[CHECK_ROWS];
    size_t kv_rows[CHECK_ROWS];
    for (size_t which = 0, i = 0; which < 2; which++) {
        const bool drops = check_one_in(c, 2);
        both[which] = check_draw_sequence(c, m, first[which] + n[which], drops ? first[which] : 0);
        for (size_t j = 0; j < n[which]; j++, i++) {
            tables[i] = both[which]->table;
            kv_rows[i] = first[which] + j;
        }
    }
    for (int i = 0; i < 2; i++) s.want[i] = check_host(c, H * Dh * sizeof(double));
    for (int i = 0; i < 2; i++) s.size[i] = check_host(c, H * Dh * sizeof(double));
    s.a.tables = check_list(c, tables, T * sizeof *tables);
    s.a.kv_rows = check_list(c, kv_rows, T * sizeof *kv_rows);
    skv_backend *be = check_backend_of(c);
    be->store(be, &s.a);
    check_done(c);
    for (size_t which = 0; which < 2; which++) {
        check_stored(c, both[which], &s, which ? n[0] : 0, first[which], n[which]);
    }
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
    const size_t Dh = 8 * check_between(c, 1, CHECK_HEAD_DIM / 8);
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
