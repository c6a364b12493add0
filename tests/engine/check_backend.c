#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "check_backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "check_backend_impl.h"

enum { CASES = 30, BLOCKS = 512, EDGE = 16, FAILURES = 10 };
enum { KINDS = 2, SPARES = 16, SPARE_NUMBERS = 1 << 17 };

static const float EDGE_VALUE = -12352; /* also as bfloat16 */

/* Memory of a case. */
typedef struct block {
    void *at; /* the host's, or one of the back end's: */
    skv_area *area;
    skv_page_pool *pool;
    skv_slots *slots;
    skv_table *table;
    skv_backend_step *step;
    bool is_under_way; /* the step */
    skv_angles *angles;
} block;

typedef struct list {
    unsigned char *pages;
    size_t n_bytes;
} list;

struct backend_check {
    skv_backend *be;
    skv_rng rng;
    uint64_t seed;
    FILE *out;
    int i_case, n_failed;
    const char *op;
    block blocks[BLOCKS];
    size_t n_blocks;
    list lists[BLOCKS];
    size_t n_lists;
    skv_backend_limits limits; /* of what the back end has: */
    skv_weight_type weights;
    skv_kv_type kv;
    bool has_experts, has_states;
    double unit; /* what storing an activation may change, as a part of it */
    /* Areas for cases whose step is under way: then none are made. */
    skv_area *spares[KINDS][SPARES];
    size_t n_spares[KINDS]; /* that the case has taken */
};

_Noreturn static void give_up(const char *what)
{
    (void)fprintf(stderr, "check_backend: %s\n", what);
    abort();
}

size_t check_below(backend_check *c, size_t n)
{
    return (size_t)skv_rng_below(&c->rng, n);
}

size_t check_between(backend_check *c, size_t a, size_t b)
{
    return a + check_below(c, b - a + 1);
}

bool check_one_in(backend_check *c, size_t n)
{
    return check_below(c, n) == 0;
}

/* Nearly normal, by a sum: logarithms and cosines would take a quarter of the time of all checks.
 */
double check_normal(backend_check *c)
{
    const uint64_t bits = skv_rng_next(&c->rng);
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return ((double)sum / 0xffff - 2) * sqrt(3);
}

skv_backend *check_backend_of(const backend_check *c)
{
    return c->be;
}

void check_begin(backend_check *c, const char *op)
{
    c->op = op;
}

/* ---- memory ---- */

static void keep(backend_check *c, block b)
{
    if (!b.at && !b.area && !b.pool && !b.slots && !b.table && !b.step && !b.angles)
        give_up("no memory");
    if (c->n_blocks == BLOCKS) give_up("too many blocks in a case");
    c->blocks[c->n_blocks++] = b;
}

void *check_host(backend_check *c, size_t n_bytes)
{
    void *at = skv_alloc_zero(skv_max_size(n_bytes, 1), 1);
    keep(c, (block){.at = at});
    return at;
}

skv_page_pool *check_pool(backend_check *c, size_t page_bytes, size_t n_pages)
{
    skv_page_pool *pool = NULL;
    skv_error err;
    if (c->be->pool_create(c->be, page_bytes, n_pages, &pool, &err) != SKV_OK) give_up(err.text);
    keep(c, (block){.pool = pool});
    return pool;
}

skv_slots *check_slots(backend_check *c, const skv_slots_spec *spec)
{
    skv_slots *slots = NULL;
    skv_error err;
    if (c->be->slots_create(c->be, spec, &slots, &err) != SKV_OK) give_up(err.text);
    check_done(c);
    keep(c, (block){.slots = slots});
    return slots;
}

skv_table *check_table(backend_check *c, const skv_slots *slots)
{
    skv_table *table = NULL;
    skv_error err;
    if (c->be->table_create(c->be, slots, &table, &err) != SKV_OK) give_up(err.text);
    keep(c, (block){.table = table});
    return table;
}

skv_angles *check_angles(backend_check *c, const skv_angles_spec *spec)
{
    skv_angles *angles = NULL;
    skv_error err;
    if (c->be->angles_create(c->be, check_list(c, spec, sizeof *spec), &angles, &err) != SKV_OK)
        give_up(err.text);
    check_done(c);
    keep(c, (block){.angles = angles});
    return angles;
}

skv_backend_step *check_new_step(backend_check *c, size_t angle_columns)
{
    skv_backend_step *step = NULL;
    const skv_backend_step_limits limits = {.max_rows = CHECK_ROWS,
                                            .angle_columns = angle_columns,
                                            .max_picks = CHECK_ROWS,
                                            .max_numbers = CHECK_ROWS * (CHECK_PICK_TOP + 8)};
    skv_error err;
    if (c->be->step_create(c->be, &limits, &step, &err) != SKV_OK) give_up(err.text);
    keep(c, (block){.step = step});
    return step;
}

static block *block_of(backend_check *c, const skv_backend_step *step)
{
    for (size_t i = 0; i < c->n_blocks; i++) {
        if (c->blocks[i].step == step) return &c->blocks[i];
    }
    give_up("a step that there is not");
}

void check_begin_described(backend_check *c, skv_backend_step *step,
                           const skv_backend_step_spec *spec)
{
    skv_error err;
    if (c->be->step_begin(c->be, step, spec, &err) != SKV_OK) give_up(err.text);
    block_of(c, step)->is_under_way = true;
    check_done(c);
}

void check_end_step(backend_check *c, skv_backend_step *step)
{
    skv_error err;
    if (c->be->start) c->be->start(c->be);
    if (c->be->step_wait(c->be, step, &err) != SKV_OK) give_up(err.text);
    block_of(c, step)->is_under_way = false;
}

static bool is_in_step(const backend_check *c)
{
    bool is = false;
    for (size_t i = 0; i < c->n_blocks; i++) is |= c->blocks[i].is_under_way;
    return is;
}

static void make_spares(backend_check *c)
{
    skv_area_spec specs[SPARES];
    skv_error err;
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < SPARES; i++) {
            specs[i] = (skv_area_spec){(skv_area_kind)k, 1, SPARE_NUMBERS, true, true};
        }
        if (c->be->areas_create(c->be, specs, SPARES, c->spares[k], &err) != SKV_OK)
            give_up(err.text);
    }
}

/* A step of one row without a table. */
static const skv_attention_item one_item = {.n_q = 1};
static const skv_backend_span one_span = {.n = 1};

void check_begin_bare(backend_check *c, skv_backend_step *step)
{
    skv_backend_step_spec spec = {.spans = check_list(c, &one_span, sizeof one_span), .n_spans = 1};
    for (int i = 0; i < SKV_SET_CHOSEN; i++) {
        spec.sets[i] = (skv_set_spec){NULL, 1, check_list(c, &one_item, sizeof one_item),
                                      i == SKV_SET_WANTED || i == SKV_SET_TAPS ? 0 : 1};
    }
    check_begin_described(c, step, &spec);
}

skv_area *check_area(backend_check *c, skv_area_spec spec)
{
    skv_area *area = NULL;
    skv_error err;
    if (is_in_step(c)) {
        size_t *n = &c->n_spares[spec.kind];
        if (*n == SPARES || spec.n_rows * spec.n_columns > SPARE_NUMBERS) give_up("no spare area");
        return c->spares[spec.kind][(*n)++];
    }
    if (c->be->areas_create(c->be, &spec, 1, &area, &err) != SKV_OK) give_up(err.text);
    keep(c, (block){.area = area});
    return area;
}

static void put(backend_check *c, skv_rows row, const float *host, size_t n)
{
    const skv_mapped to = c->be->map(c->be, row, 1, n, SKV_MAP_WRITE);
    memcpy(to.at, host, n * sizeof *host);
    c->be->unmap(c->be, to);
}

void check_get(backend_check *c, skv_rows rows, size_t n_rows, size_t n, float *out)
{
    const skv_mapped from = c->be->map(c->be, rows, n_rows, n, SKV_MAP_READ);
    for (size_t i = 0; i < n_rows; i++) {
        memcpy(out + i * n, from.at + i * from.ld, n * sizeof *out);
    }
    c->be->unmap(c->be, from);
}

void check_put(backend_check *c, check_tensor t)
{
    put(c, t.at, t.host, t.n);
    if (t.unit > 0) check_get(c, t.at, 1, t.n, t.host); /* what it has become */
}

static check_tensor random_tensor(backend_check *c, size_t n, double size, skv_area_kind kind)
{
    float edge[EDGE];
    skv_area *area = check_area(c, (skv_area_spec){kind, 1, n + 2 * EDGE, false, true});
    const check_tensor t = {{area, EDGE, n},
                            check_host(c, n * sizeof *t.host),
                            n,
                            kind == SKV_AREA_ACTIVATIONS ? c->unit : 0};
    for (size_t i = 0; i < EDGE; i++) edge[i] = EDGE_VALUE;
    for (size_t i = 0; i < n; i++) t.host[i] = (float)(size * check_normal(c));
    put(c, (skv_rows){area, 0, EDGE}, edge, EDGE);
    put(c, (skv_rows){area, EDGE + n, EDGE}, edge, EDGE);
    check_put(c, t);
    return t;
}

check_tensor check_random(backend_check *c, size_t n, double size)
{
    return random_tensor(c, n, size, SKV_AREA_F32);
}

check_tensor check_operand(backend_check *c, size_t n, double size)
{
    return random_tensor(c, n, size, check_one_in(c, 2) ? SKV_AREA_ACTIVATIONS : SKV_AREA_F32);
}

/* Largest change of a number that is stored as an activation and read again. */
static void measure_unit(backend_check *c)
{
    enum { TRIES = 256 };
    skv_area *area = check_area(c, (skv_area_spec){SKV_AREA_ACTIVATIONS, 1, TRIES, false, true});
    const skv_rows all = {area, 0, TRIES};
    float host[TRIES], back[TRIES];
    for (size_t i = 0; i < TRIES; i++) host[i] = 1 + (float)i / TRIES / 128;
    put(c, all, host, TRIES);
    check_get(c, all, 1, TRIES, back);
    for (size_t i = 0; i < TRIES; i++) {
        c->unit = fmax(c->unit, fabs((double)back[i] - (double)host[i]));
    }
    if (c->unit > CHECK_BF16) give_up("activations are less exact than bfloat16");
}

uint32_t *check_ascending(backend_check *c, size_t n_ascending, size_t n)
{
    uint32_t *out = check_host(c, n_ascending * sizeof *out);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        /* Each of what is left has the same chance (Knuth's algorithm S). */
        if (check_below(c, n - i) < n_ascending - k) out[k++] = (uint32_t)i;
    }
    return out;
}

void *check_list(backend_check *c, const void *from, size_t n_bytes)
{
    if (!from) return NULL;
    if (c->n_lists == BLOCKS) give_up("too many lists");
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_end = skv_round_up(n_bytes, 8);
    const size_t n_used = skv_round_up(skv_max_size(n_end, 1), page), n = n_used + page;
    unsigned char *pages =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) give_up("no memory");
    (void)mprotect(pages + n_used, page, PROT_NONE);
    c->lists[c->n_lists++] = (list){pages, n};
    return memcpy(pages + n_used - n_end, from, n_bytes);
}

void check_done(backend_check *c)
{
    for (size_t i = 0; i < c->n_lists; i++) {
        (void)mprotect(c->lists[i].pages, c->lists[i].n_bytes, PROT_NONE);
    }
}

/* Results have been read: what an operation has kept would have been used by now. */
static void end_case(backend_check *c)
{
    for (size_t i = 0; i < c->n_lists; i++) (void)munmap(c->lists[i].pages, c->lists[i].n_bytes);
    for (size_t i = 0; i < c->n_blocks; i++) {
        if (c->blocks[i].is_under_way) check_end_step(c, c->blocks[i].step);
    }
    for (size_t i = c->n_blocks; i-- > 0;) {
        block *b = &c->blocks[i];
        if (b->area) {
            c->be->areas_free(c->be, &b->area, 1);
        } else if (b->pool) {
            c->be->pool_free(c->be, b->pool);
        } else if (b->slots) {
            c->be->slots_free(c->be, b->slots);
        } else if (b->angles) {
            c->be->angles_free(c->be, b->angles);
        } else if (b->step) {
            c->be->step_free(c->be, b->step);
        } else if (b->table) {
            c->be->table_free(c->be, b->table);
        } else {
            skv_free(b->at);
        }
    }
    c->n_lists = c->n_blocks = c->n_spares[0] = c->n_spares[1] = 0;
}

/* ---- results ---- */

static bool fails(backend_check *c)
{
    return c->n_failed++ < FAILURES;
}

bool check_number(backend_check *c, size_t i, size_t n, double got, double want, double bound)
{
    if (fabs(got - want) <= bound) return true;
    if (fails(c)) {
        (void)fprintf(c->out, "%s: seed %llu case %d: [%zu] of %zu is %.9g, not %.9g within %g\n",
                      c->op, (unsigned long long)c->seed, c->i_case, i, n, got, want, bound);
    }
    return false;
}

void check_near(backend_check *c, check_tensor t, const double *want, const double *bound)
{
    const size_t n_all = t.n + 2 * EDGE;
    float *got = check_host(c, n_all * sizeof *got);
    check_get(c, (skv_rows){t.at.area, 0, n_all}, 1, n_all, got);
    for (size_t i = 0; i < t.n; i++) {
        const double exact = bound ? bound[i] + 1e-38 : 0;
        const double most = exact + t.unit * (fabs(want[i]) + exact);
        if (!check_number(c, i, t.n, (double)got[EDGE + i], want[i], most)) return;
    }
    for (size_t i = 0; i < 2 * EDGE; i++) {
        const size_t at = i < EDGE ? i : t.n + i;
        if (!check_number(c, at, t.n, (double)got[at], (double)EDGE_VALUE, 0)) return;
    }
}

void check_same(backend_check *c, const void *got, const void *want, size_t n_bytes)
{
    const unsigned char *a = got, *b = want;
    size_t i = 0;
    while (i < n_bytes && a[i] == b[i]) i++;
    if (i == n_bytes || !fails(c)) return;
    (void)fprintf(c->out, "%s: seed %llu case %d: byte %zu of %zu is %u, not %u\n", c->op,
                  (unsigned long long)c->seed, c->i_case, i, n_bytes, a[i], b[i]);
}

/* ---- norms ---- */

skv_norm check_norm(backend_check *c, size_t n, const float **weight)
{
    *weight = NULL;
    if (check_one_in(c, 3)) return (skv_norm){0};
    const check_tensor w = check_random(c, n, 0.5);
    *weight = w.host;
    return (skv_norm){
        .weight = check_vec(w), .offset = check_one_in(c, 2) ? 1.0f : 0.0f, .eps = 1e-5f};
}

void check_normed(const skv_norm *norm, const float *weight, const float *x, size_t n, double *out,
                  double *size)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const double inverse = weight ? 1 / sqrt(sum / (double)n + (double)norm->eps) : 1;
    for (size_t i = 0; i < n; i++) {
        const double w = weight ? (double)weight[i] + (double)norm->offset : 1;
        out[i] = (double)x[i] * inverse * w;
        /* w may be small where its parts are not. */
        const double parts = weight ? fabs((double)weight[i]) + (double)norm->offset : 1;
        size[i] =
            weight ? ((double)n / 2 + 8) * CHECK_F32 * fabs((double)x[i] * inverse) * parts : 0;
    }
}

/* ---- all of them ---- */

/* What the checks need, of a back end that has everything. */
static const skv_backend_limits all_limits = {
    .unpacks = true,
    .max_rows = CHECK_ROWS,
    .max_K = CHECK_K,
    .max_heads = CHECK_HEADS,
    .head_dim = CHECK_HEAD_DIM,
    .max_group = CHECK_HEADS,
    .max_kv_rows = CHECK_KV_ROWS,
    .ranks = {.n = 2, .sum = check_ranks_sum},
    .vocab = CHECK_VOCAB,
};

bool check_fits(const backend_check *c, skv_backend_shape shape)
{
    skv_backend_limits limits = c->limits;
    skv_error err;
    limits.max_experts = limits.max_active = 0;
    if (!shape.limits) shape.limits = &limits;
    return c->be->fits(c->be, &shape, &err) == SKV_OK;
}

bool check_fits_experts(const backend_check *c, skv_weight_type weights)
{
    skv_backend_limits limits = c->limits;
    limits.max_experts = CHECK_EXPERTS;
    limits.max_active = CHECK_ACTIVE;
    return check_fits(c, (skv_backend_shape){.limits = &limits, .weights = weights, .kv = c->kv});
}

skv_weight_type check_weights(const backend_check *c)
{
    return c->weights;
}

skv_kv_type check_kv(const backend_check *c)
{
    return c->kv;
}

/* The first weights, keys and values that it has, and whether it has experts and states. */
static void find_shapes(backend_check *c)
{
    c->limits = all_limits;
    for (int w = 0; w <= SKV_WEIGHT_QUANT_F32; w++) {
        for (int kv = 0; kv <= SKV_KV_TYPE_INT8; kv++) {
            c->weights = (skv_weight_type)w;
            c->kv = (skv_kv_type)kv;
            if (check_fits(c, (skv_backend_shape){.weights = c->weights, .kv = c->kv})) return;
        }
    }
    give_up("it has no weights, keys and values");
}

static void find_parts(backend_check *c)
{
    skv_backend_shape shape = {.weights = c->weights, .kv = c->kv};
    skv_backend_limits limits = all_limits;
    for (int w = 0; w <= SKV_WEIGHT_QUANT_F32; w++) {
        c->has_experts = c->has_experts || check_fits_experts(c, (skv_weight_type)w);
    }
    shape.limits = &limits;
    limits.state_key_dim = limits.state_value_dim = CHECK_STATE_DIM;
    shape.states = true;
    c->has_states = check_fits(c, shape);
    if (!c->has_states) limits.state_key_dim = limits.state_value_dim = 0;
    if (c->has_experts) limits.max_experts = CHECK_EXPERTS, limits.max_active = CHECK_ACTIVE;
    c->limits = limits;
}

bool check_has_states(const backend_check *c)
{
    return c->has_states;
}

int skv_check_backend(skv_backend *be, uint64_t seed, FILE *out)
{
    static const struct {
        const char *name; /* between spaces */
        void (*run)(backend_check *c);
    } checks[] = {{" memory ", check_memory},         {" rows ", check_row_operations},
                  {" linear ", check_linear},         {" experts ", check_experts},
                  {" saved_rows ", check_saved_rows}, {" sets ", check_sets},
                  {" embed ", check_embed},           {" embed_gate ", check_embed_gate},
                  {" place ", check_place},           {" attention ", check_attention},
                  {" votes ", check_votes},           {" pages ", check_pages},
                  {" compact ", check_compact},       {" turn ", check_turn},
                  {" states ", check_states},         {" pick ", check_pick}};
    const char *const some = getenv("SKV_CHECK_SOME");
    float one = 1;
    skv_error err;
    backend_check c = {.be = be, .seed = seed, .out = out, .op = "reserve"};
    skv_rng_init(&c.rng, seed);
    find_shapes(&c);
    find_parts(&c);
    c.limits.ranks.ctx = &one;
    if (be->reserve(be, &c.limits, &err) != SKV_OK) give_up(err.text);
    make_spares(&c);
    measure_unit(&c);
    for (c.i_case = 0; c.i_case < CASES; c.i_case++) {
        for (size_t i = 0; i < sizeof checks / sizeof checks[0] && c.n_failed < FAILURES; i++) {
            if (some && !strstr(some, checks[i].name)) continue;
            if (checks[i].run == check_experts && !c.has_experts) continue;
            if (checks[i].run == check_states && !c.has_states) continue;
            checks[i].run(&c);
            end_case(&c);
        }
    }
    for (size_t k = 0; k < KINDS; k++) be->areas_free(be, c.spares[k], SPARES);
    return c.n_failed;
}
