/* Timing the forms of a level's products: see forms.h. */
#include "backend/cpu/forms.h"

#include <string.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/quant_panel.h"

enum {
    TIMED_K = 2048,
    ROUNDS = 3,
    MANY_PANELS = 4,   /* of `many`, beside blocks of X: they fit a second-level cache */
    MANY_BLOCKS = 2,   /* the second finds the panels there */
    W_BYTES = 8 << 20, /* of `one`: more than a second-level cache holds */
    NR_MAX = 64,
    MR_MAX = 32,
    OPERAND_BYTE = 0x3f /* the operands' contents: codes of 63, scales and numbers of 0.75 */
};

/* The least gain that counts, and the most that one task may lose. */
static const double GAIN = 0.95, LOSS = 1.05;

typedef struct timed_memory {
    unsigned char *w, *x; /* W_BYTES, MANY_BLOCKS * block_bytes */
    size_t block_bytes;
    float *c; /* [MR_MAX, NR_MAX] */
} timed_memory;

static uint64_t system_now(void *user)
{
    (void)user;
    return skv_clock_ns();
}

skv_form_clock skv_form_clock_start(void)
{
    return (skv_form_clock){.now = system_now,
                            .end = skv_clock_ns() + SKV_FORM_ALL_MS * UINT64_C(1000000)};
}

bool skv_form_gains(double ratio)
{
    return ratio > 0 && ratio < GAIN;
}

static const skv_matmul *product_of(const skv_matmul_form *form, size_t i_task)
{
    return i_task == SKV_FORM_BF16_MANY || i_task == SKV_FORM_BF16_ONE ? form->bf16 : form->i8;
}

/* As cpu_linear.c has it: K in pieces, for each all blocks, for each all panels. */
static void multiply(const skv_matmul *mm, const timed_memory *at, bool many)
{
    const size_t panel = skv_round_up(mm->w_bytes(TIMED_K), SKV_ALIGN);
    const size_t n_panels = many ? MANY_PANELS : W_BYTES / panel;
    const size_t n_blocks = many ? MANY_BLOCKS : 1, m = many ? mm->mr : 1;
    /* One row's panels pass by one after the other. */
    const size_t strip = many ? n_panels : 1;
    for (size_t first = 0; first < n_panels; first += strip) {
        for (size_t k0 = 0; k0 < TIMED_K; k0 += mm->kc) {
            const size_t k1 = skv_min_size(k0 + mm->kc, TIMED_K);
            for (size_t i = 0; i < n_blocks * strip; i++) {
                const unsigned mode =
                    (i < strip ? SKV_TILE_PREFETCH : 0U) | (k0 > 0 ? SKV_TILE_ADD : 0U);
                mm->tile(at->c, mm->nr, at->x + i / strip * at->block_bytes,
                         at->w + (first + i % strip) * panel, m, TIMED_K, k0, k1, mode);
            }
        }
    }
    skv_matmul_finish(mm);
}

static bool fits(const skv_matmul *mm)
{
    return mm->nr <= NR_MAX && mm->mr <= MR_MAX &&
           MANY_PANELS * skv_round_up(mm->w_bytes(TIMED_K), SKV_ALIGN) <= W_BYTES;
}

/* False where a form's products do not fit the memory. */
static bool take_memory(timed_memory *at, const skv_matmul_form *forms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < SKV_FORM_TASKS; t++) {
            const skv_matmul *mm = product_of(&forms[i], t);
            if (!fits(mm)) return false;
            at->block_bytes = skv_max_size(at->block_bytes,
                                           skv_round_up(mm->x_bytes(mm->mr, TIMED_K), SKV_ALIGN));
        }
    }
    at->w = skv_map_zero(W_BYTES);
    at->x = skv_map_zero(MANY_BLOCKS * at->block_bytes);
    at->c = skv_alloc(MR_MAX * NR_MAX, sizeof *at->c);
    return at->w && at->x && at->c;
}

/* Each round runs all forms, so that a machine that changes its speed does so for all. */
void skv_forms_time(const skv_matmul_form *forms, size_t n, const skv_form_clock *clock,
                    skv_form_times *out)
{
    timed_memory at = {0};
    *out = (skv_form_times){0};
    uint64_t end = clock->now(clock->user) + SKV_FORM_LIMIT_MS * UINT64_C(1000000);
    if (end > clock->end) end = clock->end;
    const bool ready = n <= SKV_FORMS_MAX && take_memory(&at, forms, n);
    if (ready) {
        memset(at.w, OPERAND_BYTE, W_BYTES);
        memset(at.x, OPERAND_BYTE, MANY_BLOCKS * at.block_bytes);
    }
    for (size_t i = 0; ready && i < ROUNDS * n * SKV_FORM_TASKS; i++) {
        const size_t i_form = i / SKV_FORM_TASKS % n, i_task = i % SKV_FORM_TASKS;
        const uint64_t start = clock->now(clock->user);
        if (start > end) break;
        multiply(product_of(&forms[i_form], i_task), &at,
                 i_task == SKV_FORM_BF16_MANY || i_task == SKV_FORM_I8_MANY);
        const uint64_t ns = clock->now(clock->user) - start;
        uint64_t *least = &out->ns[i_form][i_task];
        if (*least == 0 || ns < *least) *least = ns > 0 ? ns : 1;
    }
    skv_unmap(at.w, W_BYTES);
    skv_unmap(at.x, MANY_BLOCKS * at.block_bytes);
    skv_free(at.c);
}

double skv_form_ratio(const skv_form_times *times, size_t i)
{
    double sum = 0;
    for (size_t t = 0; t < SKV_FORM_TASKS; t++) {
        const uint64_t mine = times->ns[i][t], usual = times->ns[0][t];
        if (mine == 0 || usual == 0) return 0;
        const double ratio = (double)mine / (double)usual;
        if (ratio > LOSS) return 0;
        sum += ratio;
    }
    return sum / SKV_FORM_TASKS;
}

bool skv_form_is_right(const skv_matmul_form *form, const skv_matmul_form *first)
{
    if (!skv_matmul_is_exact(form->bf16) || !skv_matmul_is_exact(form->i8)) return false;
    if (form == first || strcmp(form->level, first->level) != 0) return true;
    return skv_matmul_agrees(form->bf16, first->bf16, NULL) &&
           skv_matmul_agrees(form->i8, first->i8, NULL);
}

size_t skv_forms_timed(const skv_matmul_form *forms, size_t n)
{
    size_t i = 0;
    while (i < n && !forms[i].q && strcmp(forms[i].level, forms[0].level) == 0) i++;
    return i;
}

size_t skv_forms_choose(const skv_matmul_form *forms, size_t n, const skv_form_times *times)
{
    size_t best = 0;
    double least = GAIN;
    for (size_t i = 1; i < n && i < SKV_FORMS_MAX; i++) {
        const double ratio = skv_form_ratio(times, i);
        if (ratio <= 0 || ratio >= least || strcmp(forms[i].level, forms[0].level) != 0) continue;
        if (!skv_form_is_right(&forms[i], forms)) continue;
        best = i;
        least = ratio;
    }
    return best;
}

void skv_form_use(skv_kernels *k, const skv_matmul_form *form)
{
    k->bf16 = *form->bf16;
    k->i8 = *form->i8;
    if (form->attention) form->attention(k);
    if (form->q) k->q = *form->q;
}

/* ---- quantised weights ---- */

/* Rows of a task: whole blocks of each product, of 6 or 32 rows, and enough of them to repay
 * weights that are unpacked once. */
enum { Q_ROWS = 192, Q_PANELS = 2 };

typedef struct q_memory {
    unsigned char *panels;   /* [Q_PANELS][panel_bytes] */
    unsigned char *unpacked; /* [Q_PANELS][unpacked_bytes], of the other product; or NULL */
    unsigned char *blocks;   /* of Q_ROWS rows */
    float *c;                /* [MR_MAX, NR_MAX] */
    size_t panel_bytes, unpacked_bytes;
} q_memory;

static size_t q_blocks_bytes(const skv_matmul *mm)
{
    return skv_ceil_div(Q_ROWS, mm->mr) * skv_round_up(mm->x_bytes(mm->mr, TIMED_K), SKV_ALIGN);
}

/* Panels of 4 bits whose scales and codes are alike. */
static bool take_q_memory(q_memory *at, const skv_matmul *usual, const skv_matmul *other)
{
    const skv_quant_form *form = skv_quant_form_int4();
    const size_t nr = usual->nr, rows_bytes = skv_quant_rows_bytes(form, nr, TIMED_K);
    if (other->nr != nr || nr > NR_MAX || skv_max_size(usual->mr, other->mr) > MR_MAX) return false;
    at->panel_bytes = skv_round_up(skv_quant_panel_bytes(form, nr, TIMED_K), SKV_ALIGN);
    at->panels = skv_alloc_aligned(Q_PANELS, at->panel_bytes);
    if (other->unpack) {
        at->unpacked_bytes = skv_round_up(other->unpacked_bytes(TIMED_K, TIMED_K), SKV_ALIGN);
        at->unpacked = skv_alloc_aligned(Q_PANELS, at->unpacked_bytes);
    }
    at->blocks = skv_alloc_aligned(1, skv_max_size(q_blocks_bytes(usual), q_blocks_bytes(other)));
    at->c = skv_alloc(MR_MAX * NR_MAX, sizeof *at->c);
    void *memory = skv_alloc_aligned(1, rows_bytes);
    const bool ready =
        at->panels && at->blocks && at->c && memory && (at->unpacked || !other->unpack);
    if (ready) {
        skv_quant_rows rows;
        memset(memory, 1, rows_bytes);
        skv_quant_rows_init(&rows, form, nr, TIMED_K, memory);
        for (size_t i = 0; i < Q_PANELS; i++) {
            skv_quant_pack(at->panels + i * at->panel_bytes, nr, form, &rows);
        }
    }
    skv_free(memory);
    return ready;
}

static void pack_q(const skv_matmul *mm, const q_memory *at, const float *x)
{
    const size_t n_bytes = skv_round_up(mm->x_bytes(mm->mr, TIMED_K), SKV_ALIGN);
    for (size_t i = 0; i < Q_ROWS / mm->mr; i++) {
        mm->pack_x(at->blocks + i * n_bytes, x, 0, mm->mr, TIMED_K);
    }
}

static void multiply_q(const skv_matmul *mm, const q_memory *at)
{
    const size_t n_bytes = skv_round_up(mm->x_bytes(mm->mr, TIMED_K), SKV_ALIGN);
    const unsigned char *w = mm->unpack ? at->unpacked : at->panels;
    const size_t w_bytes = mm->unpack ? at->unpacked_bytes : at->panel_bytes;
    for (size_t i = 0; mm->unpack && i < Q_PANELS; i++) {
        mm->unpack(at->unpacked + i * w_bytes, at->panels + i * at->panel_bytes, TIMED_K, 0,
                   TIMED_K, 0);
    }
    for (size_t i = 0; i < Q_ROWS / mm->mr * Q_PANELS; i++) {
        mm->tile(at->c, mm->nr, at->blocks + i / Q_PANELS * n_bytes, w + i % Q_PANELS * w_bytes,
                 mm->mr, TIMED_K, 0, TIMED_K, mm->unpack ? SKV_TILE_UNPACKED : 0);
    }
    skv_matmul_finish(mm);
}

/* The least of some rounds of each, in turn; the first warms up. */
static double q_ratio(const skv_matmul *const forms[2], const q_memory *at, const float *x,
                      const skv_form_clock *clock)
{
    uint64_t least[2] = {0};
    for (size_t i = 0; i < 2 * (ROUNDS + 1); i++) {
        pack_q(forms[i % 2], at, x);
        const uint64_t start = clock->now(clock->user);
        if (start > clock->end) return 0;
        multiply_q(forms[i % 2], at);
        const uint64_t ns = clock->now(clock->user) - start + 1;
        if (i >= 2 && (least[i % 2] == 0 || ns < least[i % 2])) least[i % 2] = ns;
    }
    return (double)least[1] / (double)least[0];
}

double skv_form_q_ratio(const skv_matmul *usual, const skv_matmul *other,
                        const skv_form_clock *clock)
{
    const skv_matmul *const forms[2] = {usual, other};
    float *x = skv_alloc_zero(TIMED_K, sizeof *x);
    q_memory at = {0};
    double ratio = 0;
    if (x && take_q_memory(&at, usual, other)) {
        ratio = q_ratio(forms, &at, x, clock);
    }
    skv_free(x);
    skv_free(at.panels);
    skv_free(at.unpacked);
    skv_free(at.blocks);
    skv_free(at.c);
    return ratio;
}

size_t skv_forms_choose_q(const skv_matmul_form *forms, size_t n, const skv_matmul *usual,
                          const skv_form_clock *clock, double *ratios)
{
    size_t best = n;
    double least = 1;
    for (size_t i = 0; i < n; i++) {
        ratios[i] = forms[i].q ? skv_form_q_ratio(usual, forms[i].q, clock) : 0;
        if (!skv_form_gains(ratios[i] / least)) continue;
        best = i;
        least = ratios[i];
    }
    return best < n && skv_matmul_q_agrees(forms[best].q, usual) ? best : n;
}
