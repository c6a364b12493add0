/* Keys and values in pages: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "check_backend_impl.h"
#include "kernels/kernels.h"
#include "kernels/kv_page.h"

enum { STRIDE = (CHECK_KV_ROWS + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS, KV_HEADS = 4, COPIES = 2 };

/* The pages of one sequence in one slot. */
typedef struct sequence {
    skv_kv_type type;
    size_t n_heads, head_dim, page_bytes;
    void *pages[KV_HEADS * COPIES * STRIDE];         /* the back end's */
    unsigned char *host[KV_HEADS * COPIES * STRIDE]; /* what they hold */
    size_t dropped[KV_HEADS * COPIES];
} sequence;

static skv_kv_type draw_type(backend_check *c)
{
    static const skv_kv_type types[] = {SKV_KV_TYPE_F32, SKV_KV_TYPE_BF16, SKV_KV_TYPE_FP8,
                                        SKV_KV_TYPE_INT8};
    return types[check_below(c, 4)];
}

/* Pages for n_rows rows of each head; head h lacks dropped[h] of them where `drops`. */
static sequence *draw_sequence(backend_check *c, skv_kv_type type, size_t n_heads, size_t head_dim,
                               size_t n_rows, size_t n_droppable)
{
    sequence *s = check_host(c, sizeof *s);
    *s = (sequence){.type = type,
                    .n_heads = n_heads,
                    .head_dim = head_dim,
                    .page_bytes = skv_kv_page_bytes(type, head_dim)};
    for (size_t h = 0; h < n_heads; h++) {
        s->dropped[h] = check_below(c, n_droppable + 1);
        for (size_t p = 0; p * SKV_PAGE_ROWS < n_rows - s->dropped[h]; p++) {
            s->pages[h * STRIDE + p] = check_page(c, s->page_bytes);
            s->host[h * STRIDE + p] = check_host(c, s->page_bytes);
        }
    }
    return s;
}

/* Random rows in the pages of every head, and what they are as floats. */
static void fill_sequence(backend_check *c, sequence *s, size_t n_rows)
{
    skv_backend *be = check_backend_of(c);
    float k[CHECK_HEAD_DIM], v[CHECK_HEAD_DIM];
    for (size_t h = 0; h < s->n_heads; h++) {
        for (size_t r = 0; r < n_rows - s->dropped[h]; r++) {
            for (size_t d = 0; d < s->head_dim; d++) k[d] = (float)check_normal(c);
            for (size_t d = 0; d < s->head_dim; d++) v[d] = (float)check_normal(c);
            skv_kv_store_ref(s->host[h * STRIDE + r / SKV_PAGE_ROWS], s->type, r % SKV_PAGE_ROWS, k,
                             v, s->head_dim);
        }
    }
    for (size_t i = 0; i < s->n_heads * STRIDE; i++) {
        if (s->pages[i]) be->page_write(be, s->pages[i], s->host[i], s->page_bytes);
    }
}

static void load_row(const sequence *s, size_t h, size_t r, float *k, float *v)
{
    skv_kv_load_ref(s->host[h * STRIDE + r / SKV_PAGE_ROWS], s->type, r % SKV_PAGE_ROWS, k, v,
                    s->head_dim);
}

static void *const *table_list(backend_check *c, const sequence *s)
{
    return check_list(c, s->pages, s->n_heads * STRIDE * sizeof *s->pages);
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

/* Row r of a track: want and size are those of the head's K and V; NULL: it is to be zero still. */
static void check_page_row(backend_check *c, const sequence *s, const unsigned char *page, size_t r,
                           double *const want[2], double *const size[2], size_t at)
{
    float got[2][CHECK_HEAD_DIM];
    double bound[CHECK_HEAD_DIM];
    skv_kv_load_ref(page, s->type, r, got[0], got[1], s->head_dim);
    for (size_t which = 0; which < 2; which++) {
        if (want) page_bounds(s->type, want[which] + at, size[which] + at, s->head_dim, bound);
        for (size_t d = 0; d < s->head_dim; d++) {
            const double wanted = want ? want[which][at + d] : 0,
                         most = want ? bound[d] + 1e-38 : 0;
            if (!check_number(c, d, s->head_dim, (double)got[which][d], wanted, most)) return;
        }
    }
}

/* All pages of a sequence, of whose rows [first, first + n) were rows i0.. of the operation. */
static void check_pages(backend_check *c, const sequence *s, const storing *what, size_t i0,
                        size_t first, size_t n)
{
    skv_backend *be = check_backend_of(c);
    const size_t copies = what->a.n_copies;
    for (size_t i = 0; i < s->n_heads * STRIDE; i++) {
        if (s->pages[i]) be->page_read(be, s->host[i], s->pages[i], s->page_bytes);
    }
    for (size_t r = 0; r < first + n; r++) {
        if (r >= first) want_row(what, i0 + r - first);
        for (size_t track = 0; track < s->n_heads; track++) {
            if (r < s->dropped[track]) continue;
            const size_t row = r - s->dropped[track];
            const unsigned char *page = s->host[track * STRIDE + row / SKV_PAGE_ROWS];
            check_page_row(c, s, page, row % SKV_PAGE_ROWS, r >= first ? what->want : NULL,
                           what->size, track / copies * s->head_dim);
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
    const skv_kv_type type = draw_type(c);
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
                           .table_stride = STRIDE,
                           .n_copies = copies,
                           .type = type};
    s.a.norm.joined = joined && s.weight;
    if (joined && s.weight && same)
        s.a.norm = (skv_norm){0}, s.weight = NULL; /* v would be normed k */
    const sequence *both[2];
    void *const *tables[CHECK_ROWS];
    const size_t *dropped[CHECK_ROWS];
    size_t kv_rows[CHECK_ROWS];
    for (size_t which = 0, i = 0; which < 2; which++) {
        const bool drops = check_one_in(c, 2);
        const sequence *seq = both[which] = draw_sequence(
            c, type, H * copies, Dh, first[which] + n[which], drops ? first[which] : 0);
        void *const *table = table_list(c, seq);
        const size_t *gone = drops ? check_list(c, seq->dropped, sizeof seq->dropped) : NULL;
        for (size_t j = 0; j < n[which]; j++, i++) {
            tables[i] = table;
            dropped[i] = gone;
            kv_rows[i] = first[which] + j;
        }
    }
    for (int i = 0; i < 2; i++) s.want[i] = check_host(c, H * Dh * sizeof(double));
    for (int i = 0; i < 2; i++) s.size[i] = check_host(c, H * Dh * sizeof(double));
    s.a.tables = check_list(c, tables, T * sizeof *tables);
    s.a.dropped = check_list(c, dropped, T * sizeof *dropped);
    s.a.kv_rows = check_list(c, kv_rows, T * sizeof *kv_rows);
    skv_backend *be = check_backend_of(c);
    be->store(be, &s.a);
    check_done(c);
    for (size_t which = 0; which < 2; which++) {
        check_pages(c, both[which], &s, which ? n[0] : 0, first[which], n[which]);
    }
}

/* ---- attention and votes ---- */

/* What an arithmetic of attention may round: a part of each term, a part of the query's range, and
 * a part of each weight. */
typedef struct rounding {
    double terms, range, weights;
} rounding;

static rounding rounding_of(skv_kv_type type)
{
    if (type == SKV_KV_TYPE_F32) return (rounding){1e-6, 0, 1e-5};
    if (type == SKV_KV_TYPE_INT8) return (rounding){2.1 * CHECK_BF16, 1.05 / 254, 1.0 / 100};
    return (rounding){2.1 * CHECK_BF16, 0, 2.1 * CHECK_BF16};
}

/* One query: its scores by row, and what they may be wrong by. */
typedef struct scores {
    double at[CHECK_KV_ROWS], most, sum; /* sum: of exp(at - most), the sink included */
    double error;
} scores;

typedef struct query {
    const sequence *s;
    size_t head; /* of keys and values */
    const float *q;
    size_t begin, end; /* rows that it sees */
    float scale, softcap;
    const float *sink;
    rounding may;
} query;

static void score(const query *q, scores *out)
{
    float k[CHECK_HEAD_DIM];
    double amax = 0;
    out->most = q->sink ? (double)*q->sink : -HUGE_VAL;
    out->error = 0;
    for (size_t d = 0; d < q->s->head_dim; d++) amax = fmax(amax, fabs((double)q->q[d]));
    for (size_t r = q->begin; r < q->end; r++) {
        double value = 0, terms = 0, keys = 0;
        load_row(q->s, q->head, r, k, NULL);
        for (size_t d = 0; d < q->s->head_dim; d++) {
            value += (double)q->q[d] * (double)k[d];
            terms += fabs((double)q->q[d] * (double)k[d]);
            keys += fabs((double)k[d]);
        }
        value *= (double)q->scale;
        out->error = fmax(out->error,
                          (double)q->scale * (q->may.terms * terms + q->may.range * amax * keys));
        if (q->softcap > 0) value = (double)q->softcap * tanh(value / (double)q->softcap);
        out->at[r] = value;
        out->most = fmax(out->most, value);
    }
    out->sum = q->sink ? exp((double)*q->sink - out->most) : 0;
    for (size_t r = q->begin; r < q->end; r++) out->sum += exp(out->at[r] - out->most);
}

static double weight_of(const scores *s, size_t r)
{
    return exp(s->at[r] - s->most) / s->sum;
}

/* The part of a weight that errors of the scores may change. */
static double weight_error(const scores *s, const rounding *may)
{
    return exp(2 * s->error) * (1 + may->weights) - 1;
}

/* out [head_dim] of one query. */
static void attend(const query *q, scores *s, double *want, double *bound)
{
    float v[CHECK_HEAD_DIM];
    const size_t Dh = q->s->head_dim;
    double parts[CHECK_HEAD_DIM] = {0}, amax = 0;
    score(q, s);
    for (size_t d = 0; d < Dh; d++) want[d] = 0;
    for (size_t r = q->begin; r < q->end; r++) {
        load_row(q->s, q->head, r, NULL, v);
        for (size_t d = 0; d < Dh; d++) {
            want[d] += weight_of(s, r) * (double)v[d];
            parts[d] += weight_of(s, r) * fabs((double)v[d]);
            amax = fmax(amax, fabs((double)v[d]));
        }
    }
    /* Weights of 8 bits are whole parts of the largest one. */
    const double whole = q->s->type == SKV_KV_TYPE_INT8 ? amax / 200 : 0;
    for (size_t d = 0; d < Dh; d++)
        bound[d] = weight_error(s, &q->may) * parts[d] + whole + 1e-6 * amax;
}

/* Heads and their sizes, and a q [n_rows, ld]. */
typedef struct heads {
    size_t n_kv, n_group, n, head_dim, ld;
    check_tensor q, sinks;
    bool has_sinks;
    float scale, softcap;
} heads;

static heads draw_heads(backend_check *c, size_t n_rows)
{
    heads h = {.n_kv = check_between(c, 1, KV_HEADS), .softcap = check_one_in(c, 3) ? 5 : 0};
    h.n_group = check_between(c, 1, CHECK_HEADS / h.n_kv);
    h.n = h.n_kv * h.n_group;
    h.head_dim = 8 * check_between(c, 1, CHECK_HEAD_DIM / 8);
    h.ld = h.n * h.head_dim + 8 * check_below(c, 4);
    h.q = check_random(c, n_rows * h.ld, 1);
    h.has_sinks = check_one_in(c, 3);
    h.sinks = check_random(c, h.n, 1);
    h.scale = (float)(1 / sqrt((double)h.head_dim));
    return h;
}

static query query_of(const heads *h, const sequence *s, size_t row, size_t g, size_t end,
                      size_t window)
{
    return (query){.s = s,
                   .head = g / h->n_group,
                   .q = h->q.host + row * h->ld + g * h->head_dim,
                   .begin = window && end > window ? end - window : 0,
                   .end = end,
                   .scale = h->scale,
                   .softcap = h->softcap,
                   .sink = h->has_sinks ? h->sinks.host + g : NULL,
                   .may = rounding_of(s->type)};
}

void check_attention(backend_check *c)
{
    enum { ITEMS = 3 };
    check_begin(c, "attention");
    skv_backend *be = check_backend_of(c);
    const skv_kv_type type = draw_type(c);
    const heads h = draw_heads(c, CHECK_ROWS);
    const size_t window = check_one_in(c, 3) ? check_between(c, 1, 100) : 0;
    const size_t n_items = check_between(c, 1, ITEMS);
    const check_tensor out = check_random(c, CHECK_ROWS * h.ld, 1);
    double *want = check_host(c, out.n * sizeof *want),
           *bound = check_host(c, out.n * sizeof *bound);
    scores *s = check_host(c, sizeof *s);
    for (size_t i = 0; i < out.n; i++) want[i] = (double)out.host[i];
    skv_attention_item items[ITEMS];
    const sequence *seqs[ITEMS];
    for (size_t i = 0, row0 = 0; i < n_items; i++) {
        const bool follows = i > 0 && items[i - 1].n_q == 1 && check_one_in(c, 2);
        const size_t n_q =
            follows || check_one_in(c, 2) ? 1 : check_between(c, 1, CHECK_ROWS / ITEMS);
        const size_t n_past = follows ? items[i - 1].n_past + 1 : check_between(c, 1, 250);
        const bool drops = window == 0 && check_one_in(c, 2);
        /* A sequence has rows for what may follow. */
        sequence *seq =
            draw_sequence(c, type, h.n_kv, h.head_dim, n_past + n_q + ITEMS, drops ? n_past : 0);
        fill_sequence(c, seq, n_past + n_q + ITEMS);
        seqs[i] = follows ? seqs[i - 1] : seq;
        items[i] = (skv_attention_item){
            .row0 = row0,
            .n_q = n_q,
            .n_past = n_past,
            .dropped = follows ? items[i - 1].dropped
                       : drops ? check_list(c, seq->dropped, sizeof seq->dropped)
                               : NULL,
            .table = follows ? items[i - 1].table : table_list(c, seq),
            .follows = follows};
        for (size_t j = 0; j < n_q; j++) {
            for (size_t g = 0; g < h.n; g++) {
                const size_t end = n_past + j + 1 - seqs[i]->dropped[g / h.n_group];
                const query q = query_of(&h, seqs[i], row0 + j, g, end, window);
                const size_t at = (row0 + j) * h.ld + g * h.head_dim;
                attend(&q, s, want + at, bound + at);
            }
        }
        row0 += n_q;
    }
    const skv_attention_args args = {.out = check_rows(out, h.ld),
                                     .q = check_rows(h.q, h.ld),
                                     .items = check_list(c, items, n_items * sizeof *items),
                                     .n_items = n_items,
                                     .table_stride = STRIDE,
                                     .n_heads = h.n,
                                     .n_kv_heads = h.n_kv,
                                     .head_dim = h.head_dim,
                                     .type = type,
                                     .window = window,
                                     .scale = h.scale,
                                     .softcap = h.softcap,
                                     .sinks = h.has_sinks ? check_vec(h.sinks) : (skv_vec){0}};
    be->attention(be, &args);
    check_done(c);
    check_near(c, out, want, bound);
}

void check_votes(backend_check *c)
{
    check_begin(c, "votes");
    skv_backend *be = check_backend_of(c);
    const skv_kv_type type = draw_type(c);
    const size_t n_q = check_between(c, 1, CHECK_ROWS), n_past = check_between(c, 1, 200);
    const heads h = draw_heads(c, n_q);
    const bool drops = check_one_in(c, 2), by_query_head = check_one_in(c, 2);
    const size_t window = check_one_in(c, 2) ? check_between(c, 1, 150) : 0;
    sequence *seq = draw_sequence(c, type, h.n_kv, h.head_dim, n_past + n_q, drops ? n_past : 0);
    fill_sequence(c, seq, n_past + n_q);
    const size_t n_tracks = by_query_head ? h.n : h.n_kv, n = n_tracks * CHECK_KV_ROWS;
    float *votes = check_host(c, n * sizeof *votes);
    double *want = check_host(c, n * sizeof *want), *bound = check_host(c, n * sizeof *bound);
    scores *s = check_host(c, sizeof *s);
    for (size_t i = 0; i < n; i++) votes[i] = (float)check_below(c, 3);
    for (size_t i = 0; i < n; i++) want[i] = (double)votes[i];
    for (size_t j = 0; j < n_q; j++) {
        for (size_t g = 0; g < h.n; g++) {
            const size_t end = n_past + j + 1 - seq->dropped[g / h.n_group];
            query q = query_of(&h, seq, j, g, end, window);
            q.may = (rounding){1e-6, 0, 1e-5};
            score(&q, s);
            for (size_t r = q.begin; r < end; r++) {
                const size_t at = (by_query_head ? g : g / h.n_group) * CHECK_KV_ROWS + r;
                want[at] += weight_of(s, r);
                bound[at] += weight_error(s, &q.may) * weight_of(s, r) + 4 * CHECK_F32 * want[at];
            }
        }
    }
    const skv_votes_args args = {.q = check_rows(h.q, h.ld),
                                 .n_q = n_q,
                                 .n_past = n_past,
                                 .dropped = drops ? check_list(c, seq->dropped, sizeof seq->dropped)
                                                  : NULL,
                                 .table = table_list(c, seq),
                                 .table_stride = STRIDE,
                                 .n_heads = h.n,
                                 .n_kv_heads = h.n_kv,
                                 .head_dim = h.head_dim,
                                 .type = type,
                                 .window = window,
                                 .scale = h.scale,
                                 .softcap = h.softcap,
                                 .sinks = h.has_sinks ? check_vec(h.sinks) : (skv_vec){0},
                                 .votes = votes,
                                 .votes_stride = CHECK_KV_ROWS,
                                 .by_query_head = by_query_head};
    be->votes(be, &args);
    check_done(c);
    for (size_t i = 0; i < n; i++) {
        if (!check_number(c, i, n, (double)votes[i], want[i], bound[i])) return;
    }
}

void check_gather_kv(backend_check *c)
{
    check_begin(c, "gather_kv");
    skv_backend *be = check_backend_of(c);
    const size_t n_rows = check_between(c, 1, 250),
                 Dh = 8 * check_between(c, 1, CHECK_HEAD_DIM / 8);
    const size_t n = check_between(c, 1, n_rows < SKV_PAGE_ROWS ? n_rows : SKV_PAGE_ROWS);
    const skv_kv_type type = draw_type(c);
    sequence *from = draw_sequence(c, type, 1, Dh, n_rows, 0);
    fill_sequence(c, from, n_rows);
    const sequence *to = check_one_in(c, 2) ? from : draw_sequence(c, type, 1, Dh, n, 0);
    const uint32_t *rows = check_ascending(c, n, n_rows);
    const skv_gather_kv_args args = {.to = to->pages[0],
                                     .from = table_list(c, from),
                                     .rows = check_list(c, rows, n * sizeof *rows),
                                     .n = n,
                                     .type = type,
                                     .head_dim = Dh};
    be->gather_kv(be, &args);
    check_done(c);
    unsigned char *got = check_host(c, from->page_bytes);
    be->page_read(be, got, to->pages[0], from->page_bytes);
    for (size_t i = 0; i < n; i++) {
        float a[2][CHECK_HEAD_DIM], b[2][CHECK_HEAD_DIM];
        skv_kv_load_ref(got, type, i, a[0], a[1], Dh);
        load_row(from, 0, rows[i], b[0], b[1]);
        for (int which = 0; which < 2; which++)
            check_same(c, a[which], b[which], Dh * sizeof a[0][0]);
    }
}
