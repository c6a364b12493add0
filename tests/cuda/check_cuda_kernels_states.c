/* Kernels of linear attention against plain C in double precision: rows of sequences that come in
 * any steps, are taken back, and begin anew in states that held something else. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "cuda_case.h"

enum { CASES = 5, STEPS = 4, SEQUENCES = 2, STEP_ROWS = 10, MOST_DIM = 200, MOST_VALUES = 70 };
enum { LONG_STEPS = 3, LONG_ROWS = 150, LONGEST = LONG_STEPS * LONG_ROWS, MANY = 2 * LONG_ROWS };

/* What a sequence has read, [LONGEST] rows of each. */
typedef struct sequence {
    size_t n, settled, may_go; /* rows; those that S has; of the last rows, how many may go */
    double *k, *v, *decay, *write, *u;
} sequence;

typedef struct mixer {
    size_t n_key, n_value, key_dim, value_dim, max_undo, n_taps, n, state_floats, step_rows;
    bool mamba2, tiled;
    size_t s, kept, ring; /* floats from a state's beginning */
    unsigned char *states;
    const float *rate, *dt_bias, *skip, *weight, *bias; /* of the host */
    sequence seqs[SEQUENCES];
    /* A step. */
    size_t n_rows, n_wanted;
    size_t owner[MANY], place[MANY]; /* of each row */
    uint32_t wanted[MANY];
    bool all;
    skv_cuda_span spans[SEQUENCES];
    const skv_cuda_span *d_spans;
    const uint32_t *d_wanted;
    double S[MOST_DIM * MOST_VALUES];
} mixer;

static uint32_t type_of(cuda_case *c)
{
    return cuda_one_in(c, 2) ? SKV_CUDA_F32 : SKV_CUDA_BF16;
}

static double bound_of(uint32_t type)
{
    return type == SKV_CUDA_F32 ? 3e-5 : 4e-3;
}

static const float *numbers(cuda_case *c, size_t n, double mean, double size)
{
    float *x = cuda_normals(c, n, size);
    for (size_t i = 0; i < n; i++) x[i] += (float)mean;
    return x;
}

/* Heads of the size dim. */
static mixer new_mixer(cuda_case *c, const size_t *dim, size_t most_heads)
{
    mixer m = {.n_key = 1 + cuda_below(c, most_heads), .key_dim = dim[0], .value_dim = dim[1]};
    m.n_value = m.n_key * (1 + cuda_below(c, most_heads));
    m.step_rows = STEP_ROWS;
    m.mamba2 = cuda_one_in(c, 2);
    m.tiled = cuda_one_in(c, 2);
    m.max_undo = cuda_one_in(c, 3) ? 0 : 1 + cuda_below(c, 5);
    m.n_taps = 1 + cuda_below(c, SKV_CUDA_TAPS_MAX);
    m.n = cuda_one_in(c, 2) ? 5 : 130;
    m.s = 64;
    m.kept = m.s + m.n_value * m.key_dim * m.value_dim;
    m.ring = m.kept + m.max_undo * (m.n_key * m.key_dim + m.n_value * (m.value_dim + 2));
    m.state_floats = m.ring + (m.n_taps - 1 + m.max_undo) * m.n;
    m.states = cuda_device(c, 3 * m.state_floats * sizeof(float));
    m.rate = numbers(c, m.n_value, -0.5, 0.1);
    m.dt_bias = numbers(c, m.n_value, 0, 1);
    m.skip = m.mamba2 && cuda_one_in(c, 2) ? numbers(c, m.n_value, 1, 1) : NULL;
    m.weight = numbers(c, m.n_taps * m.n, 0, 1);
    m.bias = cuda_one_in(c, 2) ? numbers(c, m.n, 0, 1) : NULL;
    for (size_t i = 0; i < SEQUENCES; i++) {
        sequence *s = &m.seqs[i];
        s->k = cuda_host(c, LONGEST * m.n_key * m.key_dim * sizeof(double));
        s->v = cuda_host(c, LONGEST * m.n_value * m.value_dim * sizeof(double));
        s->decay = cuda_host(c, LONGEST * m.n_value * sizeof(double));
        s->write = cuda_host(c, LONGEST * m.n_value * sizeof(double));
        s->u = cuda_host(c, LONGEST * m.n * sizeof(double));
    }
    return m;
}

/* Each sequence goes on, some behind rows that are taken back, or begins anew. */
static void next_step(cuda_case *c, mixer *m)
{
    const size_t first = cuda_below(c, SEQUENCES);
    m->n_rows = m->n_wanted = 0;
    m->all = cuda_one_in(c, 3);
    for (size_t i = 0; i < SEQUENCES; i++) {
        const size_t which = (first + i) % SEQUENCES, n = 1 + cuda_below(c, m->step_rows);
        sequence *s = &m->seqs[which];
        s->n -= cuda_below(c, s->may_go + 1);
        if (cuda_one_in(c, 6)) s->n = s->settled = 0;
        const size_t n_undo = cuda_below(c, m->max_undo + 1), end = s->n + n;
        m->spans[i] = (skv_cuda_span){2 - (uint32_t)which, (uint32_t)m->n_rows, (uint32_t)n,
                                      (uint32_t)s->n, (uint32_t)n_undo};
        for (size_t j = 0; j < n; j++) {
            const size_t row = m->n_rows++;
            m->owner[row] = which;
            m->place[row] = s->n + j;
            if (m->all || cuda_one_in(c, 2)) m->wanted[m->n_wanted++] = (uint32_t)row;
        }
        s->n = end;
        s->settled = skv_max_size(s->settled, end > n_undo ? end - n_undo : 0);
        s->may_go = skv_min_size(end - s->settled, n);
    }
    m->d_spans = cuda_upload(c, m->spans, sizeof m->spans);
    m->d_wanted = m->all ? NULL : cuda_upload(c, m->wanted, m->n_wanted * 4 + 4);
}

/* Rows [first, ..) of a step are those of their sequences: `to` is where a sequence has them. */
static void keep_rows(const mixer *m, const float *x, size_t n, size_t to)
{
    for (size_t row = 0; row < m->n_rows; row++) {
        double *at = *(double *const *)(const void *)((const char *)&m->seqs[m->owner[row]] + to);
        for (size_t i = 0; i < n; i++) at[m->place[row] * n + i] = (double)x[row * n + i];
    }
}

/* ---- convolution ---- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Of the rows of a step those whose inputs are given: which a result or a later step needs. */
static size_t give_rows(cuda_case *c, const mixer *m, uint32_t *given)
{
    size_t n = 0;
    for (size_t row = 0; row < m->n_rows; row++) {
        const skv_cuda_span *span = &m->spans[row >= m->spans[1].row0];
        bool needed = row + m->n_taps - 1 + span->n_undo >= span->row0 + (size_t)span->n;
        for (size_t i = 0; i < m->n_wanted; i++) {
            const size_t w = m->wanted[i];
            needed = needed || (w >= row && w < row + m->n_taps && w < span->row0 + span->n);
        }
        if (needed || cuda_one_in(c, 3)) given[n++] = (uint32_t)row;
    }
    return n;
}

static double convolved(const mixer *m, size_t row, size_t i, const float *newest)
{
    const sequence *s = &m->seqs[m->owner[row]];
    double sum = m->bias ? (double)m->bias[i] : 0;
    for (size_t j = 0; j < m->n_taps; j++) {
        const size_t back = m->n_taps - 1 - j, at = m->place[row];
        double u = at >= back ? s->u[(at - back) * m->n + i] : 0;
        if (back == 0 && newest) u = (double)*newest;
        sum += (double)m->weight[j * m->n + i] * u;
    }
    return sum;
}

static void check_conv(cuda_case *c, mixer *m)
{
    uint32_t given[MANY];
    const bool all = cuda_one_in(c, 2), gated = cuda_one_in(c, 2), acts = cuda_one_in(c, 2);
    const size_t n = m->n, n_given = all ? m->n_rows : give_rows(c, m, given);
    const uint32_t type = type_of(c);
    const cuda_rows x = cuda_random_rows(c, type, cuda_one_in(c, 2), n_given, n, 1);
    const cuda_rows gate = cuda_random_rows(c, type, true, n_given, n, 1);
    const cuda_rows newest = cuda_random_rows(c, type, true, m->n_wanted, n, 1);
    const cuda_rows out = cuda_random_rows(c, type, true, m->n_wanted, n, 1);
    const bool newer = cuda_one_in(c, 2), in_place = all && m->all && !newer;
    const cuda_rows y = in_place ? x : cuda_new_rows(c, type, cuda_one_in(c, 2), m->n_wanted, n);
    float *u = cuda_host(c, m->n_rows * n * sizeof *u);
    for (size_t j = 0; j < n_given; j++) {
        for (size_t i = 0; i < n; i++) {
            const float g = gated ? gate.host[j * n + i] : 1;
            u[(all ? j : given[j]) * n + i] = x.host[j * n + i] * g;
        }
    }
    keep_rows(m, u, n, offsetof(sequence, u));
    const skv_cuda_conv_args a = {.x = x.at,
                                  .gate_in = gated ? gate.at : (skv_cuda_rows){0},
                                  .newest = newer ? newest.at : (skv_cuda_rows){0},
                                  .y = y.at,
                                  .gate_out = gated ? out.at : (skv_cuda_rows){0},
                                  .weight = cuda_upload(c, m->weight, m->n_taps * n * 4),
                                  .bias = m->bias ? cuda_upload(c, m->bias, n * 4) : NULL,
                                  .spans = m->d_spans,
                                  .given = all ? NULL : cuda_upload(c, given, n_given * 4 + 4),
                                  .rows = m->d_wanted,
                                  .states = m->states,
                                  .state_bytes = m->state_floats * 4,
                                  .ring = m->ring,
                                  .ring_rows = (uint32_t)(m->n_taps - 1 + m->max_undo),
                                  .ring_ld = (uint32_t)n,
                                  .n_given = (uint32_t)n_given,
                                  .n_rows = (uint32_t)m->n_wanted,
                                  .n = (uint32_t)n,
                                  .n_taps = (uint32_t)m->n_taps,
                                  .silu = acts};
    double *want = cuda_host(c, m->n_wanted * n * sizeof *want + 8);
    for (size_t j = 0; j < m->n_wanted * n; j++) {
        const float *own = newer ? &newest.host[j] : NULL;
        want[j] = convolved(m, m->wanted[j / n], j % n, own);
        if (acts) want[j] = silu(want[j]);
        if (gated) want[j] *= (double)out.host[j];
    }
    device_launch(SKV_CUDA_skv_conv_rows,
                  (device_grid){.x = SEQUENCES, .y = (uint32_t)skv_ceil_div(n, 128)}, &a);
    cuda_near(c, cuda_fetch_rows(c, &y), want, m->n_wanted * n, bound_of(type));
}

/* ---- scan ---- */

static void normalise(double *to, const double *x, size_t n, bool does, double factor)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) to[i] = does ? x[i] / sqrt(sum + 1e-6) * factor : x[i];
}

/* Row t of a sequence changes S of head h. */
static void write_row(mixer *m, const sequence *s, size_t h, size_t t)
{
    const size_t dk = m->key_dim, dv = m->value_dim, group = m->n_value / m->n_key;
    const size_t kh = m->tiled ? h % m->n_key : h / group;
    double dt = log1p(exp(s->decay[t * m->n_value + h] + (double)m->dt_bias[h]));
    if (m->mamba2) dt = fmin(fmax(dt, 0.1), 1.5);
    const double alpha = exp((double)m->rate[h] * dt);
    const double beta = m->mamba2 ? dt : 2 / (1 + exp(-s->write[t * m->n_value + h]));
    double k[MOST_DIM];
    normalise(k, s->k + (t * m->n_key + kh) * dk, dk, !m->mamba2, 1);
    for (size_t j = 0; j < dv; j++) {
        double known = 0;
        for (size_t d = 0; d < dk; d++) known += alpha * m->S[d * dv + j] * k[d];
        const double v = s->v[(t * m->n_value + h) * dv + j];
        const double u = beta * (v - (m->mamba2 ? 0 : known));
        for (size_t d = 0; d < dk; d++) m->S[d * dv + j] = alpha * m->S[d * dv + j] + k[d] * u;
    }
}

/* What q [n_key, key_dim] reads behind row t: want [value_dim]. */
static void read_row(const mixer *m, const sequence *s, size_t h, size_t t, const float *q,
                     double *want)
{
    const size_t dk = m->key_dim, dv = m->value_dim, group = m->n_value / m->n_key;
    const size_t kh = m->tiled ? h % m->n_key : h / group;
    double x[MOST_DIM];
    for (size_t d = 0; d < dk; d++) x[d] = (double)q[kh * dk + d];
    normalise(x, x, dk, !m->mamba2, 1 / sqrt((double)dk));
    for (size_t j = 0; j < dv; j++) {
        want[j] = m->skip ? (double)m->skip[h] * s->v[(t * m->n_value + h) * dv + j] : 0;
        for (size_t d = 0; d < dk; d++) want[j] += m->S[d * dv + j] * x[d];
    }
}

/* Results of head h for the wanted rows of a span. */
static void scan_head(mixer *m, const skv_cuda_span *span, size_t h, const float *q, double *want)
{
    const sequence *s = &m->seqs[m->owner[span->row0]];
    const size_t nk = m->n_key * m->key_dim, nv = m->n_value * m->value_dim;
    size_t i = 0;
    memset(m->S, 0, sizeof m->S);
    for (size_t t = 0; t < s->n; t++) {
        write_row(m, s, h, t);
        if (t < span->n_past) continue;
        const size_t row = span->row0 + t - span->n_past;
        while (i < m->n_wanted && m->wanted[i] < row) i++;
        if (i == m->n_wanted || m->wanted[i] != row) continue;
        read_row(m, s, h, t, q + i * nk, want + i * nv + h * m->value_dim);
    }
}

/* Rows that a scan reads and writes. */
typedef struct scan_case {
    cuda_rows k, v, q, decay, write, out;
} scan_case;

/* gates: the deviation of their inputs. */
static scan_case new_scan(cuda_case *c, const mixer *m, uint32_t type, uint32_t key_type,
                          double gates)
{
    const bool even = cuda_one_in(c, 2);
    const size_t nk = m->n_key * m->key_dim, nv = m->n_value * m->value_dim;
    return (scan_case){
        .k = cuda_random_rows(c, key_type, even, m->n_rows, nk, 1),
        .v = cuda_random_rows(c, type, even, m->n_rows, nv, 1),
        .q = cuda_random_rows(c, key_type, even, m->n_wanted, nk, 1),
        .decay = cuda_random_rows(c, SKV_CUDA_F32, even, m->n_rows, m->n_value, gates),
        .write = cuda_random_rows(c, SKV_CUDA_F32, even, m->n_rows, m->n_value, gates),
        .out = cuda_new_rows(c, type, even, m->n_wanted, nv)};
}

static skv_cuda_scan_args scan_args(cuda_case *c, const mixer *m, const scan_case *s)
{
    const size_t nk = m->n_key * m->key_dim, nv = m->n_value * m->value_dim;
    return (skv_cuda_scan_args){.q = s->q.at,
                                .out = s->out.at,
                                .k = s->k.at,
                                .v = s->v.at,
                                .decay = s->decay.at.at,
                                .write = m->mamba2 ? NULL : s->write.at.at,
                                .rate = cuda_upload(c, m->rate, m->n_value * 4),
                                .dt_bias = cuda_upload(c, m->dt_bias, m->n_value * 4),
                                .skip = m->skip ? cuda_upload(c, m->skip, m->n_value * 4) : 0,
                                .spans = m->d_spans,
                                .rows = m->d_wanted,
                                .states = m->states,
                                .state_bytes = m->state_floats * 4,
                                .s = m->s,
                                .kept = m->kept,
                                .kept_ld = (uint32_t)(nk + nv + 2 * m->n_value),
                                .max_undo = (uint32_t)m->max_undo,
                                .layer = 3,
                                .n_rows = (uint32_t)m->n_wanted,
                                .decay_ld = s->decay.at.ld,
                                .write_ld = s->write.at.ld,
                                .n_key_heads = (uint32_t)m->n_key,
                                .n_value_heads = (uint32_t)m->n_value,
                                .key_dim = (uint32_t)m->key_dim,
                                .value_dim = (uint32_t)m->value_dim,
                                .tiled = m->tiled,
                                .mamba2 = m->mamba2,
                                .dt_min = 0.1F,
                                .dt_max = 1.5F,
                                .write_max = 2};
}

/* As cuda_states.c does. */
static void launch_scan(const mixer *m, skv_cuda_scan_args a, size_t n_spans, bool chunks)
{
    const uint32_t x = (uint32_t)n_spans, y = a.n_value_heads, dv = a.value_dim;
    const uint32_t most = a.key_dim <= 128 ? 128 : SKV_CUDA_SCAN_KEYS;
    const device_grid rows = {x, y, (uint32_t)skv_ceil_div(dv, 32),
                              skv_cuda_scan_shared(a.key_dim)};
    const device_grid wide = {x, y, (uint32_t)skv_ceil_div(dv, SKV_CUDA_SCAN_COLUMNS),
                              skv_cuda_chunks_shared(most)};
    if (chunks) {
        a.chunks = SKV_CUDA_SCAN_BEFORE;
        device_launch(SKV_CUDA_skv_scan_rows, rows, &a);
        a.chunks = SKV_CUDA_SCAN_BEHIND;
        device_launch(most == 128 ? SKV_CUDA_skv_scan_chunks_128 : SKV_CUDA_skv_scan_chunks_256,
                      wide, &a);
    }
    device_launch(SKV_CUDA_skv_scan_rows, rows, &a);
    device_launch(SKV_CUDA_skv_scan_keep,
                  (device_grid){x, (uint32_t)skv_max_size(m->max_undo, 1), 1, 0}, &a);
}

static void check_scan(cuda_case *c, mixer *m)
{
    const bool chunks = m->step_rows > STEP_ROWS;
    const size_t nk = m->n_key * m->key_dim, nv = m->n_value * m->value_dim;
    const uint32_t type = type_of(c), key_type = chunks ? SKV_CUDA_BF16 : type;
    const double gates = chunks && cuda_one_in(c, 2) ? 40 : 1; /* which open and close */
    const scan_case s = new_scan(c, m, type, key_type, gates);
    double *want = cuda_host(c, m->n_wanted * nv * sizeof *want + 8);
    keep_rows(m, s.k.host, nk, offsetof(sequence, k));
    keep_rows(m, s.v.host, nv, offsetof(sequence, v));
    keep_rows(m, s.decay.host, m->n_value, offsetof(sequence, decay));
    keep_rows(m, s.write.host, m->n_value, offsetof(sequence, write));
    launch_scan(m, scan_args(c, m, &s), SEQUENCES, chunks);
    for (size_t i = 0; i < SEQUENCES * m->n_value; i++) {
        scan_head(m, &m->spans[i / m->n_value], i % m->n_value, s.q.host, want);
    }
    cuda_near(c, cuda_fetch_rows(c, &s.out), want, m->n_wanted * nv, bound_of(type));
}

static void check_steps(cuda_case *c, void (*check)(cuda_case *, mixer *))
{
    static const size_t dims[][2] = {{1, 1}, {7, 12}, {33, 40}, {128, 33}};
    mixer m = new_mixer(c, dims[cuda_below(c, 4)], 3);
    for (int i = 0; i < STEPS; i++) {
        next_step(c, &m);
        check(c, &m);
    }
}

static void check_rows_of_conv(cuda_case *c)
{
    check_steps(c, check_conv);
}

static void check_rows_of_scan(cuda_case *c)
{
    check_steps(c, check_scan);
}

/* Steps with chunks of any number of rows from any row on. */
static void check_chunks(cuda_case *c, const size_t *dim)
{
    static const double rates[] = {-0.5, -1e-4, -40}; /* of heads that forget slowly, and at once */
    mixer m = new_mixer(c, dim, 2);
    float *rate = cuda_host(c, m.n_value * sizeof *rate);
    for (size_t h = 0; h < m.n_value; h++) rate[h] = (float)rates[cuda_below(c, 3)];
    m.rate = rate;
    m.step_rows = LONG_ROWS;
    for (int i = 0; i < LONG_STEPS; i++) {
        next_step(c, &m);
        check_scan(c, &m);
    }
}

/* A sequence at once, and cut where a chunk ends: rows and states are the same to the bit. */
static void check_cut(cuda_case *c, const size_t *dim)
{
    static const skv_cuda_span spans[] = {
        {0, 0, 140, 0, 0}, {1, 0, 64, 0, 0}, {1, 64, 64, 64, 0}, {1, 128, 12, 128, 0}};
    mixer m = new_mixer(c, dim, 2);
    m.n_rows = m.n_wanted = 140;
    m.d_wanted = NULL;
    m.d_spans = cuda_upload(c, spans, sizeof spans);
    scan_case s = new_scan(c, &m, SKV_CUDA_F32, SKV_CUDA_BF16, 1);
    launch_scan(&m, scan_args(c, &m, &s), 1, true);
    const size_t n = m.n_rows * m.n_value * m.value_dim, n_s = m.kept - m.s;
    const float *whole = cuda_fetch_rows(c, &s.out);
    s.out = cuda_new_rows(c, SKV_CUDA_F32, true, m.n_rows, m.n_value * m.value_dim);
    for (size_t i = 1; i < 4; i++) {
        skv_cuda_scan_args a = scan_args(c, &m, &s);
        a.spans += i;
        launch_scan(&m, a, 1, true);
    }
    const float *states = cuda_download(c, m.states, 2 * m.state_floats * sizeof *states);
    const float *cut = cuda_fetch_rows(c, &s.out), *other = states + m.state_floats;
    cuda_none(c, "a cut changes rows", memcmp(cut, whole, n * sizeof *cut) != 0);
    cuda_none(c, "a cut changes S", memcmp(other + m.s, states + m.s, n_s * sizeof *states) != 0);
}

/* ---- gated norms ---- */

static void check_gated_norm(cuda_case *c)
{
    const size_t n = 1 + cuda_below(c, 300), n_groups = 1 + cuda_below(c, 3), n_rows = 3;
    const bool norms = !cuda_one_in(c, 3), per_group = cuda_one_in(c, 2);
    const cuda_rows x = cuda_random_rows(c, type_of(c), cuda_one_in(c, 2), n_rows, n_groups * n, 1);
    const cuda_rows z = cuda_random_rows(c, type_of(c), cuda_one_in(c, 2), n_rows, n_groups * n, 2);
    const float *weight = numbers(c, n_groups * n, 1, 0.3);
    const skv_cuda_gated_norm_args a = {.x = x.at,
                                        .z = z.at,
                                        .weight =
                                            norms ? cuda_upload(c, weight, n_groups * n * 4) : NULL,
                                        .n = (uint32_t)n,
                                        .per_group = per_group,
                                        .sigmoid = cuda_one_in(c, 2),
                                        .gate_first = cuda_one_in(c, 2),
                                        .eps = 0.1F,
                                        .offset = cuda_one_in(c, 2) ? 1 : 0};
    double *want = cuda_host(c, n_rows * n_groups * n * sizeof *want);
    for (size_t g = 0; g < n_rows * n_groups; g++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            const double gate = (double)z.host[g * n + i], own = (double)x.host[g * n + i];
            const double act = a.sigmoid ? 1 / (1 + exp(-gate)) : silu(gate);
            sum += own * own * (a.gate_first ? act * act : 1);
            want[g * n + i] = own * act;
        }
        for (size_t i = 0; i < n && norms; i++) {
            const float w = weight[(per_group ? g % n_groups * n : 0) + i];
            want[g * n + i] *= ((double)w + (double)a.offset) / sqrt(sum / (double)n + 0.1);
        }
    }
    device_launch(SKV_CUDA_skv_gated_norm_rows,
                  (device_grid){(uint32_t)n_rows, (uint32_t)n_groups, 1, SKV_CUDA_ROWS_SHARED}, &a);
    cuda_near(c, cuda_fetch_rows(c, &x), want, n_rows * n_groups * n, bound_of(x.at.type));
}

void check_cuda_states(cuda_case *c)
{
    static void (*const checks[])(cuda_case *) = {check_rows_of_conv, check_rows_of_scan,
                                                  check_gated_norm};
    static const char *const names[] = {"conv", "scan", "gated norm"};
    static const size_t dims[][2] = {{7, 12}, {128, 33}, {40, 70}, {200, 17}};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        for (int j = 0; j < CASES; j++) {
            c->what = names[i];
            checks[i](c);
            cuda_case_end(c);
        }
    }
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        c->what = "scan by chunks";
        check_chunks(c, dims[i]);
        check_cut(c, dims[i]);
        cuda_case_end(c);
    }
}
