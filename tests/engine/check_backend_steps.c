/* Steps and their sets of rows: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "check_backend_kv.h"

/* ---- angles ---- */

/* Numbers that no other position has, in -1..1. */
static void draw_angles(const void *ctx, size_t position, size_t context, float *cosine,
                        float *sine)
{
    const skv_angles_spec *how = ctx;
    const uint64_t *seed = how->ctx;
    skv_rng rng;
    skv_rng_init(&rng, *seed + 1000003 * position + context);
    for (size_t d = 0; d < how->n; d++) {
        cosine[d] = (float)skv_rng_below(&rng, 2000) / 1000 - 1;
        sine[d] = (float)skv_rng_below(&rng, 2000) / 1000 - 1;
    }
}

void check_angle(const step *s, size_t i_angles, size_t row, size_t d, double *co, double *si)
{
    const skv_backend_span *span = &s->spans[s->span_of[row]];
    float cosine[CHECK_HEAD_DIM], sine[CHECK_HEAD_DIM];
    const size_t position =
        s->positions ? s->positions[row] : span->position0 + s->place[row] - span->n_past;
    draw_angles(&s->how[i_angles], position, span->context, cosine, sine);
    *co = (double)cosine[d];
    *si = (double)sine[d];
}

static void make_angles(backend_check *c, step *s)
{
    const size_t half = s->m->head_dim / 2;
    for (size_t a = 0; a < SKV_STEP_ANGLES; a++) {
        uint64_t *seed = check_host(c, sizeof *seed);
        *seed = check_below(c, 1000);
        s->how[a].n = check_one_in(c, 2) ? half : check_between(c, 1, half);
        s->how[a].ctx = seed;
        const skv_angles_spec spec = {draw_angles, &s->how[a], s->how[a].n};
        s->angles[a] = check_angles(c, &spec);
    }
}

/* ---- drawing one ---- */

size_t check_row_of(const step *s, skv_row_set set, size_t i)
{
    return s->sets[set].rows ? s->sets[set].rows[i] : i;
}

/* Runs of the rows of a set; rows that are taken singly follow each other. */
static void list_items(backend_check *c, step *s, skv_row_set which)
{
    skv_set_spec *set = &s->sets[which];
    skv_attention_item *items = check_host(c, set->n_rows * sizeof *items), *item = NULL;
    set->items = items;
    for (size_t i = 0, last = 0; i < set->n_rows; i++) {
        const size_t row = check_row_of(s, which, i), span = s->span_of[row];
        const bool next = item && item->span == span && last + 1 == row;
        last = row;
        if (next && !s->singly[span]) {
            item->n_q++;
            continue;
        }
        item = &items[set->n_items++];
        *item = (skv_attention_item){i, 1, s->place[row], span, next};
    }
}

/* Some of the rows of `from`; now and then all of them, without a list, or none. */
static skv_set_spec draw_rows(backend_check *c, const step *s, skv_row_set from)
{
    const size_t n_from = s->sets[from].n_rows;
    const size_t n = check_one_in(c, 4) ? n_from : check_below(c, n_from + 1);
    uint32_t *rows = check_ascending(c, n, n_from);
    for (size_t i = 0; i < n; i++) rows[i] = (uint32_t)check_row_of(s, from, rows[i]);
    const bool all = n == s->n_rows && check_one_in(c, 2);
    return (skv_set_spec){.rows = all ? NULL : rows, .n_rows = n};
}

static void draw_sets(backend_check *c, step *s)
{
    s->sets[SKV_SET_ALL] = (skv_set_spec){.n_rows = s->n_rows};
    s->sets[SKV_SET_KEPT] = draw_rows(c, s, SKV_SET_ALL);
    s->sets[SKV_SET_WANTED] = draw_rows(c, s, SKV_SET_KEPT);
    list_items(c, s, SKV_SET_ALL);
    list_items(c, s, SKV_SET_KEPT);
}

step *check_draw_step(backend_check *c, memory *m, size_t most_past, bool drops)
{
    step *s = check_host(c, sizeof *s);
    s->m = m;
    s->n_spans = check_between(c, 1, SEQUENCES);
    for (size_t i = 0; i < s->n_spans; i++) {
        skv_backend_span *span = &s->spans[i];
        span->n = check_one_in(c, 3) ? 1 : check_between(c, 1, CHECK_ROWS / SEQUENCES);
        span->n_past = check_below(c, most_past + 1);
        const size_t n_droppable = drops && check_one_in(c, 2) ? span->n_past : 0;
        s->of[i] = check_draw_sequence(c, m, span->n_past + span->n, n_droppable);
        span->table = s->of[i]->table;
        span->position0 = check_below(c, 1000);
        span->context = check_between(c, 1, 3);
        s->singly[i] = check_one_in(c, 3);
        for (size_t j = 0; j < span->n; j++) {
            s->span_of[s->n_rows] = i;
            s->place[s->n_rows++] = span->n_past + j;
        }
    }
    s->ids = check_host(c, s->n_rows * sizeof *s->ids);
    for (size_t i = 0; i < s->n_rows; i++) s->ids[i] = (int32_t)check_below(c, CHECK_IDS);
    if (check_one_in(c, 3)) s->positions = check_ascending(c, s->n_rows, 1000);
    make_angles(c, s);
    draw_sets(c, s);
    return s;
}

/* ---- describing it ---- */

static skv_set_spec lend_set(backend_check *c, const skv_set_spec *set)
{
    return (skv_set_spec){.rows = check_list(c, set->rows, set->n_rows * sizeof *set->rows),
                          .n_rows = set->n_rows,
                          .items = check_list(c, set->items, set->n_items * sizeof *set->items),
                          .n_items = set->n_items};
}

/* In memory that is gone after check_done. */
static const skv_backend_step_spec *lend(backend_check *c, const step *s)
{
    skv_backend_step_spec spec = {.spans = check_list(c, s->spans, s->n_spans * sizeof *s->spans),
                                  .n_spans = s->n_spans,
                                  .positions =
                                      check_list(c, s->positions, s->n_rows * sizeof *s->positions),
                                  .ids = check_list(c, s->ids, s->n_rows * sizeof *s->ids),
                                  .n_angles = SKV_STEP_ANGLES,
                                  .angles_of = s->angles_of};
    for (size_t a = 0; a < SKV_STEP_ANGLES; a++) spec.angles[a] = s->angles[a];
    for (size_t i = 0; i < SKV_SET_CHOSEN; i++) spec.sets[i] = lend_set(c, &s->sets[i]);
    return check_list(c, &spec, sizeof spec);
}

static void begin(backend_check *c, const step *s)
{
    check_begin_described(c, s->at, lend(c, s));
}

/* The last span alone, with its rows as they are. */
static step *without_others(backend_check *c, const step *s)
{
    step *one = check_host(c, sizeof *one);
    *one = (step){.m = s->m, .at = s->at, .n_spans = 1};
    memcpy(one->angles, s->angles, sizeof one->angles);
    one->spans[0] = s->spans[s->n_spans - 1];
    one->of[0] = s->of[s->n_spans - 1];
    for (size_t j = 0; j < one->spans[0].n; j++) one->place[j] = one->spans[0].n_past + j;
    one->n_rows = one->spans[0].n;
    draw_sets(c, one);
    return one;
}

/* The pages of each sequence change places when the step has begun and ended. */
static void turn_pages(backend_check *c, const step *s)
{
    begin(c, s);
    check_end_step(c, s->at);
    for (size_t i = 0; i < s->n_spans; i++) {
        sequence *q = s->of[i];
        for (size_t b = 0; b < s->m->n_bundles; b++) {
            for (size_t p = 0, last = q->n_pages[b]; p + 1 < last; p++) {
                const uint32_t page = q->pages[b][p];
                q->pages[b][p] = q->pages[b][--last];
                q->pages[b][last] = page;
            }
        }
        check_write_table(c, q);
    }
}

/* Another step whose rows stand where those of s do has one of its angles, or none. */
static void begin_lender(backend_check *c, step *s)
{
    step *lender = check_host(c, sizeof *lender);
    step *others = check_host(c, sizeof *others);
    *lender = *others = *s;
    make_angles(c, others);
    lender->angles[0] = s->angles[1];
    lender->angles[1] = others->angles[1];
    if (check_one_in(c, 3)) lender->angles[0] = others->angles[0];
    lender->at = check_new_step(c, CHECK_HEAD_DIM);
    begin(c, lender);
    s->angles_of = lender->at;
}

void check_begin_step(backend_check *c, step *s)
{
    skv_backend *be = check_backend_of(c);
    check_begin(c, "step_begin");
    s->at = check_new_step(c, CHECK_HEAD_DIM);
    if (check_one_in(c, 2)) turn_pages(c, s);
    if (check_one_in(c, 2)) begin_lender(c, s);
    if (check_one_in(c, 2)) {
        begin(c, without_others(c, s));
        be->step_change(be, s->at, lend(c, s));
        check_done(c);
    } else {
        begin(c, s);
    }
    if (check_one_in(c, 2)) { /* another one is under way, too */
        step *other = without_others(c, s);
        other->at = check_new_step(c, CHECK_HEAD_DIM);
        begin(c, other);
    }
}

/* ---- sets ---- */

/* x [T, n], rows of `from`, and the numbers that each step row has there. */
typedef struct moved {
    skv_rows x;
    size_t n;
    check_tensor rows; /* [T, n] */
} moved;

static moved draw_moved(backend_check *c, const step *s, skv_row_set from)
{
    skv_backend *be = check_backend_of(c);
    moved x = {.n = check_between(c, 1, 70)};
    x.rows = check_random(c, s->n_rows * x.n, 1);
    x.x = (skv_rows){check_area(c, (skv_area_spec){SKV_AREA_F32, s->n_rows, x.n, true, true}), 0,
                     x.n};
    for (size_t i = 0; i < s->sets[from].n_rows; i++) {
        const size_t row = check_row_of(s, from, i);
        be->copy_rows(be, skv_rows_from(x.x, i, 0), skv_rows_from(check_rows(x.rows, x.n), row, 0),
                      1, x.n);
    }
    return x;
}

static void check_moved(backend_check *c, const step *s, const moved *x, skv_row_set set)
{
    const size_t n_rows = s->sets[set].n_rows, n_bytes = x->n * sizeof(float);
    float *got = check_host(c, (n_rows + 1) * n_bytes),
          *want = check_host(c, (n_rows + 1) * n_bytes);
    check_get(c, x->x, n_rows, x->n, got);
    for (size_t i = 0; i < n_rows; i++) {
        memcpy(want + i * x->n, x->rows.host + check_row_of(s, set, i) * x->n, n_bytes);
    }
    check_same(c, got, want, n_rows * n_bytes);
}

static void choose(backend_check *c, step *s, skv_row_set from, const moved *x)
{
    skv_backend *be = check_backend_of(c);
    check_begin(c, "step_choose");
    skv_set_spec chosen = draw_rows(c, s, from);
    s->sets[SKV_SET_CHOSEN] = chosen;
    list_items(c, s, SKV_SET_CHOSEN);
    chosen = lend_set(c, &s->sets[SKV_SET_CHOSEN]);
    be->step_choose(be, s->at, from, check_list(c, &chosen, sizeof chosen), x->x, x->n);
    check_done(c);
    check_moved(c, s, x, SKV_SET_CHOSEN);
}

skv_row_set check_draw_set(backend_check *c, step *s)
{
    skv_row_set set = check_below(c, 2) ? SKV_SET_KEPT : SKV_SET_ALL;
    if (check_one_in(c, 3)) {
        const moved x = draw_moved(c, s, set);
        choose(c, s, set, &x);
        set = SKV_SET_CHOSEN;
    }
    return s->sets[set].n_rows > 0 ? set : SKV_SET_ALL;
}

/* ---- embed ---- */

/* The table's rows [row0, row0 + n). */
static void read_table(const void *ctx, size_t row0, size_t n, float *out)
{
    const check_tensor *t = ctx;
    const size_t K = t->at.ld;
    memcpy(out, t->host + row0 * K, n * K * sizeof *out);
}

void check_embed(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    if (!be->keeps_embeddings) return;
    const size_t K = check_between(c, 1, 100), first = check_below(c, CHECK_IDS);
    const size_t n = check_between(c, 1, CHECK_IDS - first), ld = K + check_below(c, 9);
    check_tensor rows = check_random(c, n * K, 1);
    rows.at.ld = K;
    skv_embedding *table = NULL;
    skv_error err;
    check_begin(c, "embedding_create");
    const skv_row_source source = {.read = read_table, .ctx = &rows, .n_rows = n};
    const skv_row_source *lent = check_list(c, &source, sizeof source);
    if (be->embedding_create(be, lent, K, first, &table, &err) != SKV_OK) {
        check_same(c, err.text, "a table", 1);
        return;
    }
    check_done(c);
    step *s = check_draw_step(c, check_draw_memory(c, SKV_KV_TYPE_F32, 1, 8), 100, false);
    check_begin_step(c, s);
    const check_tensor x = check_random(c, s->n_rows * ld, 1);
    const float scale = check_one_in(c, 2) ? 1 : 3.5f;
    double *want = check_host(c, x.n * sizeof *want), *bound = check_host(c, x.n * sizeof *bound);
    for (size_t i = 0; i < x.n; i++) {
        const size_t id = (size_t)s->ids[i / ld], d = i % ld;
        const bool has = id >= first && id < first + n;
        want[i] = (double)x.host[i];
        if (d >= K) continue;
        want[i] = has ? (double)scale * (double)rows.host[(id - first) * K + d] : 0;
        bound[i] = CHECK_BF16 * fabs(want[i]); /* or better */
    }
    check_begin(c, "embed");
    be->embed(be, s->at, table, check_rows(x, ld), scale);
    check_near(c, x, want, bound);
    be->embedding_free(be, table);
}

/* ---- embed_gate ---- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

void check_embed_gate(backend_check *c)
{
    memory *m = check_draw_memory(c, SKV_KV_TYPE_F32, 1, 8);
    step *s = check_draw_step(c, m, 100, false);
    check_begin_step(c, s);
    const skv_row_set set = check_draw_set(c, s);
    const size_t n_rows = s->sets[set].n_rows;
    const size_t n = check_between(c, 1, 100), ld = n + check_below(c, 50);
    const check_tensor gate = check_operand(c, n_rows * n, 1),
                       part = check_operand(c, n_rows * n, 1);
    const check_tensor token = check_random(c, s->n_rows * ld, 1), w = check_random(c, n, 0.5);
    const skv_norm norm = {.weight = check_vec(w), .eps = 1e-6f};
    double *want = check_host(c, gate.n * sizeof *want),
           *bound = check_host(c, gate.n * sizeof *bound);
    for (size_t i = 0; i < n_rows; i++) {
        const float *t = token.host + check_row_of(s, set, i) * ld;
        check_normed(&norm, w.host, part.host + i * n, n, want + i * n, bound + i * n);
        for (size_t d = 0; d < n; d++) {
            const size_t k = i * n + d;
            const double g = (double)gate.host[k], e = want[k], up = (e + (double)t[d]) / sqrt(2);
            bound[k] = fabs(gelu(g)) * (bound[k] + 4 * CHECK_F32 * (fabs(e) + fabs((double)t[d]))) +
                       1e-5 * (fabs(g) + 0.01) * (fabs(up) + 0.01);
            want[k] = gelu(g) * up;
        }
    }
    check_begin(c, "embed_gate");
    skv_backend *be = check_backend_of(c);
    be->embed_gate(be, &(skv_embed_gate_args){.step = s->at,
                                              .set = set,
                                              .gate = check_rows(gate, n),
                                              .part = check_rows(part, n),
                                              .token = check_rows(token, ld),
                                              .n = n,
                                              .norm = norm});
    check_near(c, gate, want, bound);
}

/* ---- gather and step_choose ---- */

/* x is left with the rows of one set after the other. */
void check_sets(backend_check *c)
{
    skv_backend *be = check_backend_of(c);
    memory *m = check_draw_memory(c, SKV_KV_TYPE_F32, 1, 8);
    step *s = check_draw_step(c, m, 100, false);
    check_begin_step(c, s);
    static const skv_row_set order[] = {SKV_SET_ALL, SKV_SET_KEPT, SKV_SET_WANTED};
    const moved x = draw_moved(c, s, SKV_SET_ALL);
    size_t at = 0;
    for (size_t next = 1; next < 3; next++) {
        if (check_one_in(c, 3)) continue;
        check_begin(c, "gather");
        be->gather(be, s->at, x.x, x.n, order[at], order[next]);
        check_moved(c, s, &x, order[next]);
        at = next;
    }
    choose(c, s, order[at], &x);
    if (check_one_in(c, 2)) choose(c, s, SKV_SET_CHOSEN, &x);
}
