/*
 * bench_scan [LEVEL]: the gated delta rule of a layer of Qwen3.5-27B, 16 key and 48 value heads of
 * 128, on one thread: rows a second by blocks of 16, row by row as when decoding (S is read each
 * time and written every 16 rows), and as the textbook's recurrence with rows of kernels; and what
 * share of the layer's projections the blocks take. The best of many short turns.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"
#include "kernels/kernels.h"

enum { B = SKV_SCAN_BLOCK, DK = 128, DV = 128, NK = 16, NV = 48, PANELS = DV / B, TURNS = 80 };
enum { PANEL = B * B, HEAD = DK * DV, HIDDEN = 5120, PROJECTED = 22624 /* q k v z b a out */ };

typedef struct layer {
    skv_kernels k;
    float *s;           /* [NV][PANELS][DK][B] */
    float *kt, *qt;     /* [NK][DK][B] */
    float *u, *v, *out; /* [NV][PANELS][B][B] */
    float kk[PANEL], qk[PANEL], a[PANEL], b[PANEL], decay[B], beta[B], weight[B];
} layer;

static float *numbers(size_t n, float size)
{
    float *x = skv_alloc_aligned(n, sizeof *x);
    uint64_t state = 1;
    for (size_t i = 0; x && i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = size * ((float)(state >> 40) / (1 << 23) - 1);
    }
    return x;
}

static int layer_init(layer *l)
{
    l->s = numbers((size_t)NV * HEAD, 1);
    l->kt = numbers((size_t)NK * DK * B, 0.15f);
    l->qt = numbers((size_t)NK * DK * B, 0.01f);
    l->u = numbers((size_t)NV * DV * B, 1);
    l->v = numbers((size_t)NV * DV * B, 1);
    l->out = numbers((size_t)NV * DV * B, 1);
    for (size_t i = 0; i < B; i++) l->decay[i] = l->beta[i] = l->weight[i] = 0.5f;
    return l->s && l->kt && l->qt && l->u && l->v && l->out;
}

/* Rows [n0, n) of a block of every head. */
static void run_rows(layer *l, size_t n0, size_t n)
{
    for (size_t key = 0; key < NK; key++) {
        const float *kt = l->kt + key * DK * B, *qt = l->qt + key * DK * B;
        l->k.scan.gram(l->kk, kt, kt, n0, n, DK);
        l->k.scan.gram(l->qk, qt, kt, n0, n, DK);
        for (size_t h = key * (NV / NK); h < (key + 1) * (NV / NK); h++) {
            for (size_t i = n0 * B; i < n * B; i++) l->a[i] = 0.25f * l->kk[i];
            for (size_t i = n0 * B; i < n * B; i++) l->b[i] = 0.25f * l->qk[i];
            float *s = l->s + h * HEAD, *u = l->u + h * DV * B;
            memcpy(u, l->v + h * DV * B, DV * B * sizeof *u);
            const skv_scan_block block = {DK, n0, n, n0, n, kt, qt, l->decay, l->beta, l->a, l->b};
            l->k.scan.rows(&block, s, u, l->out + h * DV * B, PANELS);
            if (n == B) l->k.scan.fold(s, kt, u, l->weight, 0.5f, DK, PANELS);
        }
    }
}

static void by_blocks(layer *l)
{
    run_rows(l, 0, B);
}

static void by_rows(layer *l)
{
    for (size_t i = 0; i < B; i++) run_rows(l, i, i + 1);
}

/* S <- alpha S; u = beta (v - S^T k); S <- S + k u^T; o = S^T q, on S [DK][DV]. */
static void by_recurrence(layer *l)
{
    for (size_t i = 0; i < B; i++) {
        for (size_t h = 0; h < NV; h++) {
            const float *kt = l->kt + h / (NV / NK) * DK * B + i;
            const float *qt = l->qt + h / (NV / NK) * DK * B + i;
            float *s = l->s + h * HEAD, u[DV], o[DV] = {0};
            memcpy(u, l->v + h * DV * B + i * DV, sizeof u);
            for (size_t d = 0; d < DK; d++) {
                for (size_t c = 0; c < DV; c++) s[d * DV + c] *= 0.5f;
                l->k.axpy(u, -kt[d * B], s + d * DV, DV);
            }
            for (size_t c = 0; c < DV; c++) u[c] *= 0.5f;
            for (size_t d = 0; d < DK; d++) {
                l->k.axpy(s + d * DV, kt[d * B], u, DV);
                l->k.axpy(o, qt[d * B], s + d * DV, DV);
            }
            memcpy(l->out + h * DV * B + i * DV, o, sizeof o);
        }
    }
}

/* Nanoseconds of a row, the best of several turns. */
static double measure(layer *l, void (*run)(layer *))
{
    double best = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint64_t begin = skv_clock_ns();
        run(l);
        const double ns = (double)(skv_clock_ns() - begin) / B;
        if (ns < best) best = ns;
    }
    return best;
}

/* Nanoseconds that a row spends in the layer's projections with weights in bfloat16. */
static double projections(const skv_matmul *mm, const float *x)
{
    enum { N_PANELS = 24 };
    double best = 1e30;
    unsigned char *panels = skv_alloc_aligned(N_PANELS, mm->w_bytes(HIDDEN));
    unsigned char *block = skv_alloc_aligned(1, mm->x_bytes(mm->mr, HIDDEN));
    float *c = skv_alloc_aligned(mm->mr * mm->nr, sizeof *c);
    for (size_t p = 0; panels && p < N_PANELS; p++) {
        mm->pack_w(panels + p * mm->w_bytes(HIDDEN), x, HIDDEN, mm->nr, HIDDEN);
    }
    if (block) mm->pack_x(block, x, HIDDEN, mm->mr, HIDDEN);
    for (int turn = 0; panels && block && c && turn < TURNS; turn++) {
        const uint64_t begin = skv_clock_ns();
        for (size_t p = 0; p < N_PANELS; p++) {
            mm->tile(c, mm->nr, block, panels + p * mm->w_bytes(HIDDEN), mm->mr, HIDDEN, 0, HIDDEN,
                     0);
        }
        const double ns = (double)(skv_clock_ns() - begin) / (double)mm->mr / N_PANELS;
        if (ns * PROJECTED / (double)mm->nr < best) best = ns * PROJECTED / (double)mm->nr;
    }
    skv_matmul_finish(mm);
    skv_free(panels);
    skv_free(block);
    skv_free(c);
    return best;
}

int main(int argc, char **argv)
{
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    if (argc > 2 || (argc == 2 && !skv_cpu_level_parse(argv[1], &level))) {
        (void)fprintf(stderr, "usage: bench_scan [LEVEL]\n");
        return 2;
    }
    layer *l = skv_alloc_zero(1, sizeof *l);
    float *x = numbers((size_t)128 * HIDDEN, 1);
    if (!l || !x || !layer_init(l)) return 1;
    skv_kernels_init(&l->k, level, skv_cpu_detect());
    const double blocks = measure(l, by_blocks);
    const double projected = projections(&l->k.bf16, x);
    printf("%s: blocks of 16: %.0f rows/s\n", skv_cpu_level_name(l->k.level), 1e9 / blocks);
    printf("row by row, S kept for 16: %.0f rows/s\n", 1e9 / measure(l, by_rows));
    printf("recurrence: %.0f rows/s\n", 1e9 / measure(l, by_recurrence));
    printf("projections in bf16: %.0f rows/s; blocks take %.1f %% of their time\n", 1e9 / projected,
           100 * blocks / projected);
    float *const all[] = {l->s, l->kt, l->qt, l->u, l->v, l->out, x};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) skv_free(all[i]);
    skv_free(l);
    return 0;
}
