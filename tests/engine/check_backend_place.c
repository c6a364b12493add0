/* Places of queries, keys and values: see check_backend.h. */
#include <math.h>

#include "base/size.h"
#include "check_backend_kv.h"

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
void check_page_bounds(skv_kv_type type, const double *want, const double *size, size_t n,
                       double *bound)
{
    double amax = 0;
    for (size_t d = 0; d < n; d++) amax = fmax(amax, fabs(want[d]) + size[d]);
    for (size_t d = 0; d < n; d++) {
        bound[d] = size[d] + page_error(type, fabs(want[d]) + size[d], amax);
    }
}

/* A place: its arguments, and heads of a row as they are to be. */
typedef struct placing {
    const step *t;
    skv_place_args a;
    const float *q, *k, *v, *q_weight, *k_weight; /* the host's */
    double *want[2], *size[2];                    /* [n_kv_heads * head_dim] K, V of a row */
} placing;

/* want [n_heads * head_dim] = x of step row `row`, normed and rotated; size: what rounding may do.
 */
static void rotate(const placing *p, size_t i_angles, size_t row, const float *x, size_t n_heads,
                   const skv_norm *norm, const float *weight, double *want, double *size)
{
    const size_t Dh = p->a.head_dim, half = p->t->how[i_angles].n, n = n_heads * Dh;
    const size_t width = norm->joined ? n : Dh;
    for (size_t at = 0; at < n; at += width) {
        check_normed(norm, weight, x + at, width, want + at, size + at);
    }
    for (size_t at = 0; at < n; at += Dh) {
        for (size_t d = 0; d < half; d++) {
            double *y = want + at + d, *e = size + at + d, a = y[0], b = y[half], co, si;
            const double ea = e[0], eb = e[half];
            check_angle(p->t, i_angles, row, d, &co, &si);
            y[0] = a * co - b * si;
            y[half] = b * co + a * si;
            e[0] = ea * fabs(co) + eb * fabs(si) + 2 * CHECK_F32 * (fabs(a * co) + fabs(b * si));
            e[half] = eb * fabs(co) + ea * fabs(si) + 2 * CHECK_F32 * (fabs(b * co) + fabs(a * si));
        }
    }
}

/* K and V of step row `row`. */
static void want_row(const placing *p, size_t row)
{
    const size_t Dh = p->a.head_dim, n = p->a.n_kv_heads * Dh;
    const float *v = p->v + row * p->a.v.ld;
    float ones[CHECK_HEAD_DIM];
    const skv_norm v_norm = {.eps = p->a.v_eps};
    for (size_t d = 0; d < Dh; d++) ones[d] = 1;
    rotate(p, p->a.k_angles, row, p->k + row * p->a.k.ld, p->a.n_kv_heads, &p->a.k_norm,
           p->k_weight, p->want[0], p->size[0]);
    for (size_t at = 0; at < n; at += Dh) {
        check_normed(&v_norm, p->a.v_eps > 0 ? ones : NULL, v + at, Dh, p->want[1] + at,
                     p->size[1] + at);
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
        if (want) check_page_bounds(s->m->type, want[which] + at, size[which] + at, Dh, bound);
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

/* The rows of a span, which are behind zeros in their sequence. */
static void check_stored(backend_check *c, const placing *p, size_t i_span, size_t row0)
{
    const sequence *s = p->t->of[i_span];
    const skv_backend_span *span = &p->t->spans[i_span];
    check_get_pages(c, s);
    check_others(c, s);
    for (size_t r = 0; r < span->n_past + span->n; r++) {
        const bool placed = r >= span->n_past && p->a.k.area;
        if (placed) want_row(p, row0 + r - span->n_past);
        for (size_t h = 0; h < s->m->n_heads; h++) {
            if (r < check_dropped_of(s, h)) continue;
            check_page_row(c, s, h, r - check_dropped_of(s, h), placed ? p->want : NULL, p->size,
                           h / p->a.n_copies * s->m->head_dim);
        }
    }
}

static skv_norm draw_norm(backend_check *c, size_t n_heads, size_t head_dim, const float **weight)
{
    const bool joined = check_one_in(c, 3);
    skv_norm norm = check_norm(c, joined ? n_heads * head_dim : head_dim, weight);
    norm.joined = joined && *weight;
    return norm;
}

/* Keys and values of all rows. */
static void draw_kv(backend_check *c, placing *p)
{
    const size_t Dh = p->a.head_dim, H = p->a.n_kv_heads, ld = H * Dh + check_below(c, 9);
    const check_tensor k = check_operand(c, p->t->n_rows * ld, 1);
    const bool same = check_one_in(c, 4); /* v is k */
    const check_tensor v = same ? k : check_operand(c, p->t->n_rows * ld, 1);
    p->k = k.host;
    p->v = v.host;
    p->a.k = check_rows(k, ld);
    p->a.v = check_rows(v, ld);
    p->a.v_eps = same || check_one_in(c, 3) ? 1e-6f : 0;
    p->a.k_norm = draw_norm(c, H, Dh, &p->k_weight);
    if (p->a.k_norm.joined && same) p->a.k_norm = (skv_norm){0}, p->k_weight = NULL;
    p->a.k_angles = check_below(c, SKV_STEP_ANGLES);
    p->a.slot = SLOT;
}

/* Queries of the rows of the set, and what becomes of them. */
static check_tensor draw_q(backend_check *c, placing *p, double **want, double **bound)
{
    const size_t n = p->a.n_heads * p->a.head_dim, ld = n + check_below(c, 20);
    const size_t n_rows = p->t->sets[p->a.set].n_rows;
    const check_tensor q = check_operand(c, n_rows * ld, 1);
    *want = check_host(c, q.n * sizeof **want);
    *bound = check_host(c, q.n * sizeof **bound);
    p->a.q = check_rows(q, ld);
    p->a.q_norm = draw_norm(c, p->a.n_heads, p->a.head_dim, &p->q_weight);
    p->a.q_angles = check_below(c, SKV_STEP_ANGLES);
    for (size_t i = 0; i < q.n; i++) (*want)[i] = (double)q.host[i];
    for (size_t i = 0; i < n_rows; i++) {
        rotate(p, p->a.q_angles, check_row_of(p->t, p->a.set, i), q.host + i * ld, p->a.n_heads,
               &p->a.q_norm, p->q_weight, *want + i * ld, *bound + i * ld);
    }
    return q;
}

void check_place(backend_check *c)
{
    const size_t H = check_between(c, 1, KV_HEADS), copies = check_between(c, 1, COPIES);
    const size_t Dh = check_draw_head_dim(c);
    memory *m = check_draw_memory(c, check_draw_type(c), H * copies, Dh);
    step *t = check_draw_step(c, m, 200, true);
    const bool with_q = !check_one_in(c, 3), with_kv = !with_q || check_one_in(c, 2);
    placing p = {.t = t};
    double *want = NULL, *bound = NULL;
    check_tensor q = {.n = 0};
    check_begin_step(c, t);
    p.a = (skv_place_args){.step = t->at,
                           .head_dim = Dh,
                           .set = check_draw_set(c, t),
                           .n_heads = check_between(c, 1, CHECK_HEADS),
                           .n_kv_heads = H,
                           .n_copies = copies};
    for (int i = 0; i < 2; i++) p.want[i] = check_host(c, H * Dh * sizeof(double));
    for (int i = 0; i < 2; i++) p.size[i] = check_host(c, H * Dh * sizeof(double));
    if (with_q) q = draw_q(c, &p, &want, &bound);
    if (with_kv) draw_kv(c, &p);
    check_begin(c, "place");
    skv_backend *be = check_backend_of(c);
    be->place(be, &p.a);
    if (with_q) check_near(c, q, want, bound);
    for (size_t i = 0, row0 = 0; i < t->n_spans; row0 += t->spans[i++].n) {
        check_stored(c, &p, i, row0);
    }
}
