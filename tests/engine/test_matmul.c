/* The matrix products and the choice of kernels: see check_matmul.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "amx_attention_model.h"
#include "amx_q_model.h"
#include "backend/cpu/forms.h"
#include "backend/cpu/verify.h"
#include "base/pool.h"
#include "check_matmul.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/train_rows.h"

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(skv_check_matmul(1, false, stderr), 0);
}

static void test_level_names(void **state)
{
    (void)state;
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_BEST,    SKV_CPU_LEVEL_REF,    SKV_CPU_LEVEL_AVX2,
                                    SKV_CPU_LEVEL_AVXVNNI, SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_AMX,
                                    SKV_CPU_LEVEL_NEON};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        skv_cpu_level parsed;
        assert_true(skv_cpu_level_parse(skv_cpu_level_name(levels[i]), &parsed));
        assert_int_equal(parsed, levels[i]);
    }
    skv_cpu_level untouched = SKV_CPU_LEVEL_NEON;
    assert_false(skv_cpu_level_parse("avx3", &untouched));
    assert_int_equal(untouched, SKV_CPU_LEVEL_NEON);
}

static void test_levels_are_clamped(void **state)
{
    (void)state;
    skv_kernels k;
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, 0);
    assert_int_equal(k.level, SKV_CPU_LEVEL_REF);
    skv_kernels_init(&k, SKV_CPU_LEVEL_AVX512, 0);
    assert_int_equal(k.level, SKV_CPU_LEVEL_REF);
    assert_true(skv_cpu_level_runs(SKV_CPU_LEVEL_REF, 0));
    assert_false(skv_cpu_level_runs(SKV_CPU_LEVEL_AVX2, 0));
#if defined(__x86_64__)
    skv_kernels_init(&k, SKV_CPU_LEVEL_AVX512, SKV_CPU_AVX2);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX2);
    skv_kernels_init(&k, SKV_CPU_LEVEL_AVXVNNI, SKV_CPU_AVX2 | SKV_CPU_AVX512);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX2);
    skv_kernels_init(&k, SKV_CPU_LEVEL_AVX512, SKV_CPU_AVX2 | SKV_CPU_AVX_VNNI);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVXVNNI);
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, SKV_CPU_AVX2 | SKV_CPU_AVX_VNNI | SKV_CPU_AVX512);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX512);
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, SKV_CPU_AVX2 | SKV_CPU_AVX512);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX512);
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, SKV_CPU_AVX2 | SKV_CPU_AVX512 | SKV_CPU_AMX);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX512);
#endif
    skv_kernels_init(&k, SKV_CPU_LEVEL_REF, ~0u);
    assert_int_equal(k.level, SKV_CPU_LEVEL_REF);
}

static bool is_product(const skv_matmul *m)
{
    return m->nr && m->mr && m->w_bytes && m->x_bytes && m->pack_w && m->pack_x && m->tile;
}

static bool is_loop(const skv_peak_loop *loop)
{
    return loop->run && loop->n_products && loop->n_operands && loop->instructions;
}

/* A table may be asked for that this processor cannot run: filling it executes no instruction of
 * the level, and leaves no entry out. */
static void check_tables(skv_cpu_level level, unsigned features)
{
    skv_kernels k;
    skv_kernels_init(&k, level, features);
    assert_true(skv_cpu_level_runs(k.level, features));
    assert_true(is_product(&k.f32) && is_product(&k.wide));
    assert_true(is_product(&k.bf16) && is_product(&k.i8));
    assert_true(k.kv_store && k.kv_load && k.attention_tokens && k.attention_scratch);
    assert_true(k.attention && k.attention_part && k.attention_join);
    assert_true(k.rmsnorm && k.rope && k.silu_glu && k.gelu_tanh_glu && k.axpy && k.softcap);
    assert_true(k.logsumexp && k.add_exp && k.from_bf16 && k.to_bf16 && k.dot);
    skv_train_rows rows;
    skv_train_rows_init(&rows, level, features);
    assert_true(rows.max && rows.exp && rows.softmax_back && rows.silu_glu_back);
    assert_true(rows.rmsnorm_back && rows.kl && rows.adamw && rows.square_sum);
    skv_peak_loops peak;
    skv_peak_init(&peak, level, features);
    assert_true(is_loop(&peak.f32) && is_loop(&peak.bf16) && is_loop(&peak.i8) &&
                is_loop(&peak.i4));
    assert_true(peak.read);
    if (k.level == SKV_CPU_LEVEL_REF) return;
    /* No family falls back to the reference at a level that it does not know. */
    assert_true(rows.adamw != skv_train_rows_ref.adamw && peak.f32.run != skv_peak_f32_ref.run);
}

static void test_tables_of_other_processors(void **state)
{
    (void)state;
    const unsigned all = SKV_CPU_AVX2 | SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16 |
                         SKV_CPU_NEON | SKV_CPU_NEON_DOT | SKV_CPU_AVX_VNNI | SKV_CPU_NEON_I8MM |
                         SKV_CPU_NEON_BF16 | SKV_CPU_AMX;
    for (unsigned features = 0; features <= all; features++) {
        check_tables(SKV_CPU_LEVEL_BEST, features);
        check_tables(SKV_CPU_LEVEL_REF, features);
        check_tables(SKV_CPU_LEVEL_AVX2, features);
        check_tables(SKV_CPU_LEVEL_AVXVNNI, features);
        check_tables(SKV_CPU_LEVEL_AVX512, features);
        check_tables(SKV_CPU_LEVEL_AMX, features);
        check_tables(SKV_CPU_LEVEL_NEON, features);
    }
}

static void tile_off_by_one(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                            size_t K, size_t k0, size_t k1, unsigned mode)
{
    skv_matmul_i8_ref.tile(c, ldc, block, panel, m, K, k0, k1, mode);
    if (k1 == K) c[(m - 1) * ldc + skv_matmul_i8_ref.nr - 2] += 1.0f;
}

static void test_wrong_products_are_refused(void **state)
{
    (void)state;
    assert_true(skv_matmul_is_exact(&skv_matmul_i8_ref));
    assert_true(skv_matmul_is_exact(&skv_matmul_bf16_ref));
    skv_matmul wrong = skv_matmul_i8_ref;
    wrong.tile = tile_off_by_one;
    assert_false(skv_matmul_is_exact(&wrong));
}

static void attend_off(const skv_attention *a, void *scratch)
{
    skv_attention wrong = *a;
    wrong.n_past--; /* every token misses its own row */
    skv_kernels ref;
    skv_kernels_init(&ref, SKV_CPU_LEVEL_REF, 0);
    ref.attention(&wrong, scratch);
}

/* Two levels that round alike agree, though they add up and raise 2 in other ways; a wrong one is
 * refused. */
static void test_wrong_attention_is_refused(void **state)
{
    (void)state;
    const unsigned features = skv_cpu_detect() & ~(unsigned)SKV_CPU_AMX;
    const unsigned both = SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16;
    skv_kernels ref, model, below;
    skv_kernels_init(&ref, SKV_CPU_LEVEL_REF, 0);
    assert_true(skv_attention_agrees(&ref, &ref));
    skv_kernels_init(&model, SKV_CPU_LEVEL_REF, 0);
    amx_model_attention_init(&model);
    skv_kernels_init(&below, SKV_CPU_LEVEL_AVX512, features);
    if ((features & both) == both) assert_true(skv_attention_agrees(&model, &below));
    ref.attention = attend_off;
    assert_false(skv_attention_agrees(&ref, &model));
    skv_kernels_init(&below, SKV_CPU_LEVEL_REF, 0);
    assert_false(skv_attention_agrees(&ref, &below));
}

/* ---- choosing a form ---- */

/* What a call of each form's `tile` takes on the tests' clock, by the rows of X; and the clock. */
enum { MANY, ONE };
static atomic_ullong fake_now;
static uint64_t fake_cost[3][2];

/* The longest time between two looks at the clock, of a measurement. */
static uint64_t last_look, longest_look;

static uint64_t read_fake(void *user)
{
    (void)user;
    if (fake_now - last_look > longest_look) longest_look = fake_now - last_look;
    last_look = fake_now;
    return fake_now;
}

/* Computes for comparisons, whose K is short; else it only takes its time. */
static void fake_tile(const skv_matmul *mm, size_t i_form, float *c, const void *block,
                      const void *panel, size_t m, size_t K, const size_t range[2], unsigned mode)
{
    fake_now += fake_cost[i_form][m > 1 ? MANY : ONE];
    if (K < 2048) mm->tile(c, mm->nr, block, panel, m, K, range[0], range[1], mode);
}

#define FAKE_TILE(kind, i)                                                                         \
    static void fake_##kind##_##i(float *c, size_t ldc, const void *block, const void *panel,      \
                                  size_t m, size_t K, size_t k0, size_t k1, unsigned mode)         \
    {                                                                                              \
        (void)ldc;                                                                                 \
        fake_tile(&skv_matmul_##kind##_ref, i, c, block, panel, m, K, (const size_t[]){k0, k1},    \
                  mode);                                                                           \
    }
FAKE_TILE(bf16, 0)
FAKE_TILE(bf16, 1)
FAKE_TILE(bf16, 2)
FAKE_TILE(i8, 0)
FAKE_TILE(i8, 1)
FAKE_TILE(i8, 2)

/* Three forms, whose products are those of the reference. */
typedef struct fake_forms {
    skv_matmul bf16[3], i8[3];
    skv_matmul_form forms[3];
} fake_forms;

static void make_fakes(fake_forms *f)
{
    void (*const bf16[])(float *, size_t, const void *, const void *, size_t, size_t, size_t,
                         size_t, unsigned) = {fake_bf16_0, fake_bf16_1, fake_bf16_2};
    void (*const i8[])(float *, size_t, const void *, const void *, size_t, size_t, size_t, size_t,
                       unsigned) = {fake_i8_0, fake_i8_1, fake_i8_2};
    static const char *const names[] = {"usual", "second", "third"};
    for (size_t i = 0; i < 3; i++) {
        f->bf16[i] = skv_matmul_bf16_ref;
        f->i8[i] = skv_matmul_i8_ref;
        f->bf16[i].tile = bf16[i];
        f->i8[i].tile = i8[i];
        f->forms[i] = (skv_matmul_form){names[i], "level", &f->bf16[i], &f->i8[i], NULL, NULL};
    }
}

static size_t chosen(const fake_forms *f, const uint64_t cost[3][2])
{
    const skv_form_clock clock = {.now = read_fake, .end = UINT64_MAX};
    skv_form_times times;
    memcpy(fake_cost, cost, sizeof fake_cost);
    fake_now = 0;
    skv_forms_time(f->forms, 3, &clock, &times);
    return skv_forms_choose(f->forms, 3, &times);
}

static void test_fastest_form_is_taken(void **state)
{
    (void)state;
    fake_forms f;
    make_fakes(&f);
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {100, 100}, {100, 100}}), 0);
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {80, 80}, {60, 60}}), 2);
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {60, 60}, {80, 80}}), 1);
    /* A gain below 5 % is none. */
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {96, 96}, {97, 97}}), 0);
    /* One that loses where there is one row is out of the question. */
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {90, 90}, {20, 110}}), 1);
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {50, 104}, {120, 50}}), 1);
    /* So is one that has other bits, */
    f.forms[1].level = "level-other";
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {50, 50}, {90, 90}}), 2);
    f.forms[1].level = "level";
    /* and one that is wrong. */
    f.i8[2].tile = tile_off_by_one;
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{100, 100}, {90, 90}, {0, 0}}), 1);
}

/* No measurement begins after SKV_FORM_LIMIT_MS, and forms that were not reached stay away. */
static void test_timing_ends(void **state)
{
    (void)state;
    const skv_form_clock clock = {.now = read_fake, .end = UINT64_MAX};
    const uint64_t slow = 15000000;
    skv_form_times times;
    fake_forms f;
    make_fakes(&f);
    assert_int_equal(chosen(&f, (const uint64_t[3][2]){{slow, slow}, {1, 1}, {1, 1}}), 0);
    fake_now = 0;
    skv_forms_time(f.forms, 3, &clock, &times);
    assert_true(times.ns[0][SKV_FORM_BF16_MANY] > 0);
    assert_int_equal(times.ns[2][SKV_FORM_BF16_MANY], 0);
    assert_true(skv_form_ratio(&times, 2) == 0);
}

/* A form that has the first one's name for users has its bits, or is not used. */
static void test_forms_of_one_name_agree(void **state)
{
    (void)state;
    const skv_matmul_form first = {"first", "level", &skv_matmul_bf16_ref, &skv_matmul_i8_ref,
                                   NULL,    NULL};
    skv_matmul_form other = first;
    assert_true(skv_form_is_right(&other, &first));
    other.bf16 = &skv_matmul_wide_ref; /* exact with integers, and does not round rows of X */
    assert_int_equal(skv_matmul_wide_ref.nr, skv_matmul_bf16_ref.nr);
    assert_true(skv_matmul_is_exact(other.bf16));
    assert_false(skv_form_is_right(&other, &first));
    other.level = "level-other";
    assert_true(skv_form_is_right(&other, &first));
}

static void tile_q_usual(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                         size_t K, size_t k0, size_t k1, unsigned mode)
{
    fake_now += fake_cost[0][MANY];
    if (K < 2048) skv_matmul_q_ref.tile(c, ldc, block, panel, m, K, k0, k1, mode);
}

static void tile_q_other(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                         size_t K, size_t k0, size_t k1, unsigned mode)
{
    fake_now += fake_cost[1][MANY];
    if (K < 2048) skv_matmul_q_ref.tile(c, ldc, block, panel, m, K, k0, k1, mode);
    if (K < 2048 && fake_cost[2][ONE]) c[0] += 1.0f; /* a wrong one */
}

/* Unpacked weights are where the panel stands. */
static size_t fake_bytes(size_t K, size_t n)
{
    (void)K;
    return n > 0 ? sizeof(void *) : 0;
}

static void tile_q_once(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                        size_t K, size_t k0, size_t k1, unsigned mode)
{
    fake_now += fake_cost[1][mode & SKV_TILE_UNPACKED ? ONE : MANY];
    if (mode & SKV_TILE_UNPACKED) memcpy(&panel, panel, sizeof panel);
    if (K < 2048) skv_matmul_q_ref.tile(c, ldc, block, panel, m, K, k0, k1, mode);
}

static bool takes_other(const skv_matmul *usual, const skv_matmul *other,
                        const skv_form_clock *clock)
{
    const skv_matmul_form forms[] = {{.name = "usual"}, {.q = other}};
    double ratios[2];
    return skv_forms_choose_q(forms, 2, usual, clock, ratios) == 1;
}

/* Products of quantised weights change where they gain 5 %, and only to equal ones. */
static void test_faster_product_of_codes_is_taken(void **state)
{
    (void)state;
    const skv_form_clock clock = {.now = read_fake, .end = UINT64_MAX};
    skv_matmul usual = skv_matmul_q_ref, other = skv_matmul_q_ref;
    usual.tile = tile_q_usual;
    other.tile = tile_q_other;
    memset(fake_cost, 0, sizeof fake_cost);
    fake_cost[0][MANY] = 1000;
    fake_cost[1][MANY] = 800;
    const double ratio = skv_form_q_ratio(&usual, &other, &clock);
    assert_true(ratio > 0.79 && ratio < 0.81);
    assert_true(takes_other(&usual, &other, &clock));
    fake_cost[2][ONE] = 1;
    assert_false(takes_other(&usual, &other, &clock));
    fake_cost[2][ONE] = 0;
    fake_cost[1][MANY] = 970;
    assert_false(takes_other(&usual, &other, &clock));
    const skv_form_clock ended = {.now = read_fake, .end = fake_now + 1000};
    assert_true(skv_form_q_ratio(&usual, &other, &ended) == 0);
    assert_false(takes_other(&usual, &other, &ended));
#if defined(__x86_64__)
    const skv_matmul model = AMX_MATMUL_Q, once = AMX_MATMUL_Q_ONCE;
    if (amx_model_has_few()) {
        assert_true(skv_matmul_q_agrees(&model, &skv_matmul_q_avx512vnni));
        assert_true(skv_matmul_q_agrees(&once, &skv_matmul_q_avx512vnni));
    }
#endif
}

static void unpack_fake(void *to, const void *panel, size_t K, size_t k0, size_t k1, unsigned mode)
{
    fake_now += fake_cost[2][MANY];
    memcpy(to, &panel, sizeof panel);
    (void)K;
    (void)k0;
    (void)k1;
    (void)mode;
}

/* A later form has to be faster than those before it, and what unpacking takes counts. */
static void test_fastest_product_of_codes_is_taken(void **state)
{
    (void)state;
    const skv_form_clock clock = {.now = read_fake, .end = UINT64_MAX};
    skv_matmul usual = skv_matmul_q_ref, other = skv_matmul_q_ref, once = skv_matmul_q_ref;
    usual.tile = tile_q_usual;
    other.tile = tile_q_other;
    once.tile = tile_q_once;
    once.unpack = unpack_fake;
    once.unpacked_bytes = fake_bytes;
    const skv_matmul_form forms[] = {{.name = "usual"}, {.q = &other}, {.q = &once}};
    double ratios[3];
    memset(fake_cost, 0, sizeof fake_cost);
    fake_cost[0][MANY] = 1000;
    fake_cost[1][MANY] = 800;
    fake_cost[1][ONE] = 780; /* of a tile whose weights are unpacked */
    assert_int_equal(skv_forms_choose_q(forms, 3, &usual, &clock, ratios), 1);
    assert_true(ratios[0] == 0 && ratios[1] > 0.79 && ratios[2] > 0.77 && ratios[2] < 0.79);
    fake_cost[1][ONE] = 700;
    assert_int_equal(skv_forms_choose_q(forms, 3, &usual, &clock, ratios), 2);
    fake_cost[2][MANY] = 100000; /* of each panel */
    assert_int_equal(skv_forms_choose_q(forms, 3, &usual, &clock, ratios), 1);
    fake_cost[1][MANY] = 990;
    assert_int_equal(skv_forms_choose_q(forms, 3, &usual, &clock, ratios), 3);
}

/* Half panels take fake_cost[1][ONE] for each half. */
static void tile_halves(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                        size_t K, size_t k0, size_t k1, unsigned mode)
{
    (void)c;
    (void)ldc;
    (void)block;
    (void)panel;
    (void)m;
    (void)K;
    (void)k0;
    (void)k1;
    fake_now += fake_cost[mode & (SKV_TILE_LEFT | SKV_TILE_RIGHT) ? 1 : 0][ONE];
}

/* The clock counts the work of all threads together. */
static void test_halves_are_timed(void **state)
{
    (void)state;
#if !defined(__x86_64__)
    skip();
#endif
    skv_pool *pool;
    skv_matmul mm = skv_matmul_i8_ref;
    const skv_form_clock clock = {.now = read_fake, .end = UINT64_MAX};
    assert_int_equal(skv_pool_create(4, &pool, NULL), SKV_OK);
    memset(fake_cost, 0, sizeof fake_cost);
    fake_cost[0][ONE] = 100000;
    fake_cost[1][ONE] = 30000;
    mm.tile = tile_halves;
    mm.halves = false;
    assert_true(skv_form_halves_ratio(&mm, pool, &clock) == 0);
    mm.halves = true;
    assert_true(skv_form_gains(skv_form_halves_ratio(&mm, pool, &clock)));
    fake_cost[1][ONE] = 60000; /* two of them take longer than the whole */
    const double ratio = skv_form_halves_ratio(&mm, pool, &clock);
    assert_true(ratio > 1.19 && ratio < 1.21);
    assert_false(skv_form_gains(ratio));
    const skv_form_clock ended = {.now = read_fake, .end = fake_now - 1};
    assert_true(skv_form_halves_ratio(&mm, pool, &ended) == 0);
    skv_pool_free(pool);
}

/* All measurements of an opening engine together take less than 30 ms, however long each takes, if
 * none takes more than 5. */
static void test_all_timing_ends(void **state)
{
    (void)state;
    const uint64_t ms = 1000000;
    size_t n_checked = 0, n_cut = 0;
    skv_pool *pool;
    skv_matmul usual = skv_matmul_q_ref, other = skv_matmul_q_ref, halves = skv_matmul_i8_ref;
    usual.tile = tile_q_usual;
    other.tile = tile_q_other;
    halves.tile = tile_halves;
    halves.halves = true;
    assert_int_equal(skv_pool_create(2, &pool, NULL), SKV_OK);
    for (uint64_t cost = 100; cost < ms; cost *= 2) {
        const skv_form_clock clock = {.now = read_fake, .end = SKV_FORM_ALL_MS * ms};
        fake_forms f;
        skv_form_times times;
        make_fakes(&f);
        for (size_t j = 0; j < 4; j++) fake_cost[j / 2][j % 2] = cost;
        fake_cost[2][ONE] = 0;
        fake_now = last_look = longest_look = 0;
        skv_forms_time(f.forms, 3, &clock, &times);
        (void)skv_form_q_ratio(&usual, &other, &clock);
        (void)skv_form_q_ratio(&usual, &other, &clock);
        (void)skv_form_halves_ratio(&halves, pool, &clock);
        if (longest_look > 5 * ms) break;
        assert_true(fake_now < 30 * ms);
        n_checked++;
        n_cut += fake_now > SKV_FORM_LIMIT_MS * ms;
    }
    assert_true(n_checked > 3 && n_cut > 0);
    skv_pool_free(pool);
}

static void test_form_names(void **state)
{
    (void)state;
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    const skv_matmul_form *form, *forms;
    size_t n;
    assert_null(skv_matmul_forms(SKV_CPU_LEVEL_REF, &n));
    assert_int_equal(n, 0);
    assert_true(skv_matmul_form_parse("avx2", &level, &form));
    assert_true(level == SKV_CPU_LEVEL_AVX2 && !form);
    assert_false(skv_matmul_form_parse("amx-", &level, &form));
    forms = skv_matmul_forms(SKV_CPU_LEVEL_AMX, &n);
    for (size_t i = 0; i < n; i++) {
        skv_kernels k;
        assert_true(skv_matmul_form_parse(forms[i].name, &level, &form));
        assert_true(level == SKV_CPU_LEVEL_AMX && form == &forms[i]);
        assert_memory_equal(forms[i].name, "amx-", 4);
        assert_true(is_product(form->bf16) && is_product(form->i8));
        skv_form_use(&k, form);
        assert_true(k.i8.tile == form->i8->tile && k.bf16.tile == form->bf16->tile);
        assert_true(!form->q || k.q.tile == form->q->tile);
        skv_kernels_init(&k, SKV_CPU_LEVEL_AMX, ~0U); /* the first one is the level's own */
        assert_int_equal(k.i8.tile == form->i8->tile && k.bf16.tile == form->bf16->tile, i == 0);
    }
}

static void test_cpu_name(void **state)
{
    (void)state;
    char name[128], cut[4];
    skv_cpu_name(name, sizeof name);
    assert_true(strlen(name) > 0);
    skv_cpu_name(cut, sizeof cut);
    assert_true(strlen(cut) <= 3);
    assert_memory_equal(cut, name, strlen(cut));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_level_names),
        cmocka_unit_test(test_levels_are_clamped),
        cmocka_unit_test(test_tables_of_other_processors),
        cmocka_unit_test(test_wrong_products_are_refused),
        cmocka_unit_test(test_fastest_form_is_taken),
        cmocka_unit_test(test_timing_ends),
        cmocka_unit_test(test_forms_of_one_name_agree),
        cmocka_unit_test(test_faster_product_of_codes_is_taken),
        cmocka_unit_test(test_fastest_product_of_codes_is_taken),
        cmocka_unit_test(test_halves_are_timed),
        cmocka_unit_test(test_all_timing_ends),
        cmocka_unit_test(test_form_names),
        cmocka_unit_test(test_wrong_attention_is_refused),
        cmocka_unit_test(test_cpu_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
