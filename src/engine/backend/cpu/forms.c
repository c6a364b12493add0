/* Timing the forms of a level's products: see forms.h. */
#include "backend/cpu/forms.h"

#include <string.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

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
    const skv_form_clock system = {.now = system_now};
    timed_memory at = {0};
    *out = (skv_form_times){0};
    if (!clock) clock = &system;
    const bool ready = n <= SKV_FORMS_MAX && take_memory(&at, forms, n);
    if (ready) {
        memset(at.w, OPERAND_BYTE, W_BYTES);
        memset(at.x, OPERAND_BYTE, MANY_BLOCKS * at.block_bytes);
    }
    const uint64_t began = clock->now(clock->user);
    for (size_t i = 0; ready && i < ROUNDS * n * SKV_FORM_TASKS; i++) {
        const size_t i_form = i / SKV_FORM_TASKS % n, i_task = i % SKV_FORM_TASKS;
        const uint64_t start = clock->now(clock->user);
        if (start - began > SKV_FORM_LIMIT_MS * UINT64_C(1000000)) break;
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

size_t skv_forms_choose(const skv_matmul_form *forms, size_t n, const skv_form_times *times)
{
    size_t best = 0;
    double least = GAIN;
    for (size_t i = 1; i < n && i < SKV_FORMS_MAX; i++) {
        const double ratio = skv_form_ratio(times, i);
        if (ratio <= 0 || ratio >= least || strcmp(forms[i].level, forms[0].level) != 0) continue;
        if (!skv_matmul_is_exact(forms[i].bf16) || !skv_matmul_is_exact(forms[i].i8)) continue;
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
}
