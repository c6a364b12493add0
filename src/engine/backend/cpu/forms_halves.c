/*
 * Timing whole panels beside halves of them: see forms.h. Halves busy twice as many threads where a
 * product has fewer panels than there are threads; but the threads that read whole ones may already
 * read as fast as memory gives. So weights are read from memory here: each measurement has panels
 * of its own, whose lines have left all caches.
 */
#include "backend/cpu/forms.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

#if defined(__x86_64__)
#include <emmintrin.h>
enum { CAN_FLUSH = true };
#else
enum { CAN_FLUSH = false }; /* programs may not empty caches everywhere */
#endif

enum {
    TIMED_K = 4096,
    TURNS = 4, /* of both, the first of which wakes the threads */
    NR_MAX = 64,
    OPERAND_BYTE = 0x3f /* codes of 63, scales and numbers of 0.75 */
};

typedef struct timed_halves {
    const skv_matmul *mm;
    unsigned char *panels; /* [2 TURNS][n_panels][panel_bytes], owned */
    unsigned char *block;  /* a row, owned */
    float *c;              /* [2 n_panels][NR_MAX], owned */
    size_t n_panels, panel_bytes;
    size_t i_set; /* the panels that are read now */
    bool halved;
} timed_halves;

static unsigned char *panel_at(const timed_halves *t, size_t i)
{
    return t->panels + (t->i_set * t->n_panels + i) * t->panel_bytes;
}

/* As weights are packed: by the thread that begins with them. */
static void fill_panel(void *arg, size_t i_task, size_t i_thread)
{
    const timed_halves *t = arg;
    unsigned char *panel = panel_at(t, i_task);
    (void)i_thread;
    memset(panel, OPERAND_BYTE, t->panel_bytes);
#if defined(__x86_64__)
    for (size_t i = 0; i < t->panel_bytes; i += SKV_ALIGN) _mm_clflush(panel + i);
#endif
}

static void read_panel(void *arg, size_t i_task, size_t i_thread)
{
    const timed_halves *t = arg;
    const skv_matmul *mm = t->mm;
    const unsigned half = !t->halved ? 0 : i_task % 2 ? SKV_TILE_RIGHT : SKV_TILE_LEFT;
    const unsigned char *panel = panel_at(t, t->halved ? i_task / 2 : i_task);
    (void)i_thread;
    for (size_t k = 0; k < TIMED_K; k += mm->kc) {
        const unsigned mode = half | SKV_TILE_PREFETCH | (k > 0 ? SKV_TILE_ADD : 0U);
        mm->tile(t->c + i_task * NR_MAX, NR_MAX, t->block, panel, 1, TIMED_K, k,
                 skv_min_size(k + mm->kc, TIMED_K), mode);
    }
    skv_matmul_finish(mm);
}

static size_t panels_bytes(const timed_halves *t)
{
    return 2 * (size_t)TURNS * t->n_panels * t->panel_bytes;
}

static bool take_memory(timed_halves *t, skv_pool *pool, const skv_form_clock *clock)
{
    t->n_panels = skv_pool_threads(pool) / 2;
    t->panel_bytes = skv_round_up(t->mm->w_bytes(TIMED_K), SKV_ALIGN);
    t->panels = skv_map_zero(panels_bytes(t));
    t->block = skv_alloc_aligned(1, t->mm->x_bytes(t->mm->mr, TIMED_K));
    t->c = skv_alloc_aligned(2 * t->n_panels, NR_MAX * sizeof *t->c);
    if (!t->panels || !t->block || !t->c) return false;
    memset(t->block, OPERAND_BYTE, t->mm->x_bytes(t->mm->mr, TIMED_K));
    for (t->i_set = 0; t->i_set < 2 * (size_t)TURNS; t->i_set++) {
        if (clock->now(clock->user) > clock->end) return false;
        skv_pool_run_stretches(pool, t->n_panels, fill_panel, t);
    }
    return true;
}

/* Each turn runs both, in either order. */
static double halves_ratio(timed_halves *t, skv_pool *pool, const skv_form_clock *clock)
{
    uint64_t least[2] = {0};
    for (size_t i = 0; i < 2 * (size_t)TURNS; i++) {
        const uint64_t start = clock->now(clock->user);
        if (start > clock->end) return 0;
        t->i_set = i;
        t->halved = (i + i / 2) % 2;
        skv_pool_run_stretches(pool, t->n_panels << t->halved, read_panel, t);
        const uint64_t ns = clock->now(clock->user) - start + 1;
        uint64_t *best = &least[t->halved];
        if (i >= 2 && (*best == 0 || ns < *best)) *best = ns;
    }
    return (double)least[1] / (double)least[0];
}

double skv_form_halves_ratio(const skv_matmul *mm, skv_pool *pool, const skv_form_clock *clock)
{
    double ratio = 0;
    timed_halves t = {.mm = mm};
    if (!CAN_FLUSH || !mm->halves || mm->nr > NR_MAX || skv_pool_threads(pool) < 2) return 0;
    if (take_memory(&t, pool, clock)) ratio = halves_ratio(&t, pool, clock);
    skv_unmap(t.panels, panels_bytes(&t));
    skv_free(t.block);
    skv_free(t.c);
    return ratio;
}
