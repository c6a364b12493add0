/* Rows of pages that go to other positions: see check_backend.h. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "check_backend_kv.h"
#include "kernels/kernels.h"

enum { POSITIONS = 4096 };

/* Rows of one sequence that another one gets, at places of its own. */
typedef struct turn {
    sequence *from, *to;
    size_t n_rows, n; /* of both, and those that are turned */
    size_t to_row, from_row, to_position, from_position, context;
    skv_angles_spec spec;
} turn;

/* The angle and amplitude of a position; seed 0: those of position 0. */
static void angle_of(const skv_angles_spec *spec, size_t position, size_t context, size_t d,
                     double *angle, double *amplitude)
{
    const uint64_t *seed = spec->ctx;
    skv_rng rng;
    skv_rng_init(&rng, *seed + (*seed > 0 ? 1000003 * position + context : 0) + 31 * d);
    *angle = (double)skv_rng_below(&rng, 6283) / 1000;
    *amplitude = 0.5 + (double)skv_rng_below(&rng, 1000) / 1000;
}

static void draw_angles(const void *ctx, size_t position, size_t context, float *cosine,
                        float *sine)
{
    const skv_angles_spec *spec = ctx;
    for (size_t d = 0; d < spec->n; d++) {
        double angle, amplitude;
        angle_of(spec, position, context, d, &angle, &amplitude);
        cosine[d] = (float)(amplitude * cos(angle));
        sine[d] = (float)(amplitude * sin(angle));
    }
}

static skv_angles *make_angles(backend_check *c, turn *t, size_t head_dim)
{
    uint64_t *seed = check_host(c, sizeof *seed);
    *seed = check_one_in(c, 4) ? 0 : check_between(c, 1, 1000);
    t->spec.n = check_one_in(c, 2) ? head_dim / 2 : check_between(c, 1, head_dim / 2);
    t->spec.ctx = seed;
    skv_angles_spec *kept = check_host(c, sizeof *kept); /* until angles_free */
    *kept = t->spec;
    const skv_angles_spec spec = {draw_angles, kept, kept->n};
    return check_angles(c, &spec);
}

static void run_turn(backend_check *c, const turn *t, const skv_angles *angles)
{
    skv_backend *be = check_backend_of(c);
    const memory *m = t->from->m;
    const size_t to_page = t->to_row / SKV_PAGE_ROWS, from_page = t->from_row / SKV_PAGE_ROWS;
    const size_t n_to = skv_ceil_div(t->to_row + t->n, SKV_PAGE_ROWS) - to_page;
    const size_t n_from = skv_ceil_div(t->from_row + t->n, SKV_PAGE_ROWS) - from_page;
    skv_turn_job jobs[KV_HEADS];
    for (size_t h = 0; h < m->n_heads; h++) {
        const skv_track_spec *track = &m->tracks[m->track0 + h];
        const uint32_t *to = t->to->pages[track->bundle] + to_page;
        const uint32_t *from = t->from->pages[track->bundle] + from_page;
        jobs[h] = (skv_turn_job){.to = check_list(c, to, n_to * sizeof *to),
                                 .from = check_list(c, from, n_from * sizeof *from),
                                 .to_row = t->to_row % SKV_PAGE_ROWS,
                                 .from_row = t->from_row % SKV_PAGE_ROWS,
                                 .n = t->n,
                                 .offset = track->offset,
                                 .head_dim = track->head_dim,
                                 .angles = angles,
                                 .to_position = t->to_position,
                                 .from_position = t->from_position,
                                 .context = t->context};
    }
    be->pages_turn(be, m->pool, m->type, check_list(c, jobs, m->n_heads * sizeof *jobs),
                   m->n_heads);
    check_done(c);
}

/* want [Dh] = the key of row i, turned; size: what arithmetic in f32 may do. */
static void want_key(const turn *t, size_t i, const float *key, size_t head_dim, double *want,
                     double *size)
{
    const size_t n = t->spec.n;
    for (size_t d = 0; d < head_dim; d++) {
        want[d] = (double)key[d];
        size[d] = 0;
    }
    for (size_t d = 0; d < n; d++) {
        double to[2], from[2];
        angle_of(&t->spec, t->to_position + i, t->context, d, &to[0], &to[1]);
        angle_of(&t->spec, t->from_position + i, t->context, d, &from[0], &from[1]);
        const double scale = to[1] / from[1], angle = to[0] - from[0];
        const double a = (double)key[d], b = (double)key[d + n];
        want[d] = scale * (a * cos(angle) - b * sin(angle));
        want[d + n] = scale * (b * cos(angle) + a * sin(angle));
        size[d] = size[d + n] = 32 * CHECK_F32 * scale * (fabs(a) + fabs(b));
    }
}

static void check_turned(backend_check *c, const turn *t, size_t h, const float *was, size_t i)
{
    const size_t Dh = t->from->m->head_dim;
    float now[2][CHECK_HEAD_DIM];
    double want[CHECK_HEAD_DIM], size[CHECK_HEAD_DIM], bound[CHECK_HEAD_DIM];
    const uint64_t *seed = t->spec.ctx;
    check_load_row(t->to, h, t->to_row + i, now[0], now[1]);
    check_same(c, now[1], was + CHECK_HEAD_DIM, Dh * sizeof *was);
    if (*seed == 0 || t->to_position == t->from_position) {
        check_same(c, now[0], was, Dh * sizeof *was);
        return;
    }
    want_key(t, i, was, Dh, want, size);
    check_page_bounds(t->from->m->type, want, size, Dh, bound);
    for (size_t d = 0; d < Dh; d++) {
        if (!check_number(c, d, Dh, (double)now[0][d], want[d], bound[d] + 1e-38)) return;
    }
}

/* Every row of every head of both sequences: [heads][rows][2][CHECK_HEAD_DIM]. */
static float *load_rows(backend_check *c, const sequence *s, size_t n_rows)
{
    const size_t n_heads = s->m->n_heads, n = 2 * (size_t)CHECK_HEAD_DIM;
    float *out = check_host(c, n_heads * n_rows * n * sizeof *out);
    for (size_t h = 0; h < n_heads; h++) {
        for (size_t r = 0; r < n_rows; r++) {
            float *row = out + (h * n_rows + r) * n;
            check_load_row(s, h, r, row, row + CHECK_HEAD_DIM);
        }
    }
    return out;
}

void check_turn(backend_check *c)
{
    check_begin(c, "pages_turn");
    const size_t Dh = check_draw_head_dim(c), n = 2 * (size_t)CHECK_HEAD_DIM;
    turn t = {.n_rows = check_between(c, 1, CHECK_KV_ROWS)};
    memory *m = check_draw_memory(c, check_draw_type(c), check_between(c, 1, KV_HEADS), Dh);
    t.from = check_draw_sequence(c, m, t.n_rows, 0);
    t.to = check_draw_sequence(c, m, t.n_rows, 0);
    check_fill_sequence(c, t.from, t.n_rows);
    check_fill_sequence(c, t.to, t.n_rows);
    t.n = check_between(c, 1, t.n_rows);
    t.to_row = check_below(c, t.n_rows - t.n + 1);
    t.from_row = check_below(c, t.n_rows - t.n + 1);
    t.from_position = check_below(c, POSITIONS);
    t.to_position = check_one_in(c, 4) ? t.from_position : check_below(c, POSITIONS);
    t.context = check_below(c, POSITIONS);
    const float *from = load_rows(c, t.from, t.n_rows), *to = load_rows(c, t.to, t.n_rows);
    run_turn(c, &t, make_angles(c, &t, Dh));
    check_get_pages(c, t.from);
    check_get_pages(c, t.to);
    const float *from_now = load_rows(c, t.from, t.n_rows), *to_now = load_rows(c, t.to, t.n_rows);
    for (size_t h = 0; h < m->n_heads; h++) {
        check_same(c, from_now + h * t.n_rows * n, from + h * t.n_rows * n,
                   t.n_rows * n * sizeof *from);
        for (size_t r = 0; r < t.n_rows; r++) {
            const size_t at = (h * t.n_rows + r) * n;
            const bool turned = r >= t.to_row && r < t.to_row + t.n;
            if (turned) {
                const size_t i = r - t.to_row;
                check_turned(c, &t, h, from + (h * t.n_rows + t.from_row + i) * n, i);
            } else {
                check_same(c, to_now + at, to + at, n * sizeof *to);
            }
        }
    }
}
