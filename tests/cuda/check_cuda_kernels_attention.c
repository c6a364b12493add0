/* Attention and votes against plain C in double precision, from the keys and values that are
 * stored. */
#include <math.h>
#include <stdio.h>

#include "base/size.h"
#include "cuda_case.h"

enum { ITEMS = 3, PAGES = 6, MAX_PAGES = 11, BLOCKS = 512, BIG_GROUP = 17 };

/* Cases: of any number of tokens, of few, and of few behind more than PAGES. */
typedef enum case_size { ANY, FEW, LONG } case_size;

typedef struct attention_case {
    size_t head_dim, n_kv_heads, n_group;
    size_t n_items, n_q[ITEMS], n_past[ITEMS], n_rows;
    size_t window;
    double softcap;
    float *sinks; /* [n_heads] or NULL */
    cuda_rows q;
    cuda_cache cache;
    float *kv; /* [n_items][n_kv_heads][MAX_PAGES * 64][2][head_dim] as stored */
} attention_case;

static const float *kv_row(const attention_case *t, size_t item, size_t h, size_t row, size_t which)
{
    const size_t n = MAX_PAGES * SKV_PAGE_ROWS;
    return t->kv + (((item * t->n_kv_heads + h) * n + row) * 2 + which) * t->head_dim;
}

/* Every row that some token sees; the others stay NaNs. */
static void fill_cache(cuda_case *c, attention_case *t)
{
    const size_t n = t->n_items * t->n_kv_heads * MAX_PAGES * SKV_PAGE_ROWS * 2 * t->head_dim;
    float *x = cuda_host(c, t->head_dim * sizeof *x);
    t->kv = cuda_host(c, n * sizeof *t->kv);
    for (size_t i = 0; i < t->n_items * t->n_kv_heads; i++) {
        const size_t item = i / t->n_kv_heads, h = i % t->n_kv_heads;
        const size_t end = t->n_past[item] + t->n_q[item] - cuda_dropped(&t->cache, item, h);
        for (size_t row = 0; row < end; row++) {
            unsigned char *page = cuda_page(&t->cache, t->cache.pool, item, h, row);
            for (size_t which = 0; which < 2; which++) {
                for (size_t e = 0; e < t->head_dim; e++) x[e] = (float)skv_rng_normal(&c->rng);
                float *stored = (float *)(uintptr_t)kv_row(t, item, h, row, which);
                cuda_set_row(&t->cache, page, row % SKV_PAGE_ROWS, which, x);
                cuda_get_row(&t->cache, page, row % SKV_PAGE_ROWS, which, stored);
            }
        }
    }
    cuda_put_cache(&t->cache);
}

static attention_case random_attention(cuda_case *c, size_t head_dim, skv_kv_type type,
                                       case_size size)
{
    static const size_t pasts[] = {0, 1, 31, 63, 64, 65, 127, 200}, lengths[] = {1, 2, 5, 33, 64};
    attention_case t = {.head_dim = head_dim,
                        .n_kv_heads = 1 + cuda_below(c, 2),
                        .n_group = cuda_one_in(c, 6) ? BIG_GROUP : 1 + cuda_below(c, 5),
                        .n_items = size == LONG ? 1 : 1 + cuda_below(c, ITEMS),
                        .window = cuda_one_in(c, 2) ? 1 + cuda_below(c, 150) : 0,
                        .softcap = cuda_one_in(c, 2) ? 3 : 0};
    const size_t n_heads = t.n_kv_heads * t.n_group;
    for (size_t i = 0; i < t.n_items; i++) {
        t.n_q[i] = size != ANY ? 1 + cuda_below(c, 4) : lengths[cuda_below(c, 5)];
        t.n_past[i] = size == LONG ? 500 + cuda_below(c, 190) : pasts[cuda_below(c, 8)];
        t.n_rows += t.n_q[i];
    }
    t.cache = cuda_new_cache(c, type, head_dim, t.n_kv_heads, t.n_items, MAX_PAGES, 0);
    for (size_t i = 0; i < t.n_items; i++) {
        uint32_t *table = t.cache.tables + i * t.cache.table_words;
        for (size_t h = 0; h < t.n_kv_heads; h++) {
            table[h] = (uint32_t)(cuda_one_in(c, 2) ? cuda_below(c, t.n_past[i] + 1) : 0);
        }
    }
    device_put(t.cache.d_tables, t.cache.tables,
               t.n_items * t.cache.table_words * sizeof(uint32_t));
    if (cuda_one_in(c, 2)) t.sinks = cuda_normals(c, n_heads, 1);
    const bool exact = type == SKV_KV_TYPE_F32;
    t.q = cuda_random_rows(c, exact ? SKV_CUDA_F32 : SKV_CUDA_BF16, !exact, t.n_rows,
                           n_heads * head_dim, 1);
    fill_cache(c, &t);
    return t;
}

/* The score of row `row` of token j of an item, of query head g. */
static double score_of(const attention_case *t, size_t item, size_t i_row, size_t g, size_t row)
{
    const size_t Dh = t->head_dim, h = g / t->n_group;
    const float *q = t->q.host + i_row * t->q.n + g * Dh, *k = kv_row(t, item, h, row, 0);
    double dot = 0;
    for (size_t e = 0; e < Dh; e++) dot += (double)q[e] * (double)k[e];
    dot /= sqrt((double)Dh);
    return t->softcap > 0 ? t->softcap * tanh(dot / t->softcap) : dot;
}

/* Weights [end] of the softmax of a token's query head; returns end. */
static size_t weights_of(const attention_case *t, size_t item, size_t j, size_t i_row, size_t g,
                         double *w)
{
    const size_t h = g / t->n_group;
    const size_t end = t->n_past[item] + j + 1 - cuda_dropped(&t->cache, item, h);
    const size_t begin = t->window && end > t->window ? end - t->window : 0;
    double most = -(double)INFINITY, sum = 0;
    for (size_t r = 0; r < end; r++) {
        w[r] = r < begin ? -(double)INFINITY : score_of(t, item, i_row, g, r);
        most = fmax(most, w[r]);
    }
    if (t->sinks) sum = exp((double)t->sinks[g] - most);
    for (size_t r = 0; r < end; r++) sum += w[r] = exp(w[r] - most);
    for (size_t r = 0; r < end; r++) w[r] /= sum;
    return end;
}

static double *attention_in_double(cuda_case *c, const attention_case *t)
{
    double *out = cuda_host(c, t->n_rows * t->q.n * sizeof *out);
    double *w = cuda_host(c, MAX_PAGES * SKV_PAGE_ROWS * sizeof *w);
    for (size_t item = 0, i_row = 0; item < t->n_items; item++) {
        for (size_t j = 0; j < t->n_q[item]; j++, i_row++) {
            for (size_t g = 0; g < t->n_kv_heads * t->n_group; g++) {
                const size_t end = weights_of(t, item, j, i_row, g, w);
                double *o = out + i_row * t->q.n + g * t->head_dim;
                for (size_t r = 0; r < end; r++) {
                    const float *v = kv_row(t, item, g / t->n_group, r, 1);
                    for (size_t e = 0; e < t->head_dim; e++) o[e] += w[r] * (double)v[e];
                }
            }
        }
    }
    return out;
}

/* Items, and blocks of `n_pairs` pairs of them; returns the number of blocks. */
static uint32_t describe(cuda_case *c, const attention_case *t, size_t n_pairs,
                         skv_cuda_attention_args *a)
{
    skv_cuda_item *items = cuda_host(c, t->n_items * sizeof *items);
    skv_cuda_block *blocks = cuda_host(c, BLOCKS * sizeof *blocks);
    uint32_t n = 0, row0 = 0;
    for (uint32_t i = 0; i < t->n_items; i++) {
        items[i] = (skv_cuda_item){.table = cuda_table(&t->cache, i),
                                   .row0 = row0,
                                   .n_q = (uint32_t)t->n_q[i],
                                   .n_past = (uint32_t)t->n_past[i]};
        for (uint32_t r = 0; r < t->n_q[i] * t->n_group; r += (uint32_t)n_pairs) {
            blocks[n++] = (skv_cuda_block){.item = i, .row = r};
        }
        row0 += items[i].n_q;
    }
    a->items = cuda_upload(c, items, t->n_items * sizeof *items);
    a->blocks = cuda_upload(c, blocks, n * sizeof *blocks);
    return n;
}

static skv_cuda_attention_args args_of(cuda_case *c, const attention_case *t, const cuda_rows *out)
{
    const size_t n_heads = t->n_kv_heads * t->n_group;
    skv_cuda_attention_args a = {.out = out->at,
                                 .q = t->q.at,
                                 .kv = t->cache.kv,
                                 .n_heads = (uint32_t)n_heads,
                                 .n_group = (uint32_t)t->n_group,
                                 .head_dim = (uint32_t)t->head_dim,
                                 .window = (uint32_t)t->window,
                                 .scale = 1 / sqrtf((float)t->head_dim),
                                 .softcap = (float)t->softcap};
    if (t->sinks) a.sinks = cuda_upload(c, t->sinks, n_heads * sizeof *t->sinks);
    return a;
}

/* The kernel of a size of heads and a type of pages, of the first one of its kind. */
static skv_cuda_kernel kernel_of(skv_cuda_kernel first, size_t i_dim, skv_kv_type type)
{
    const int stride =
        SKV_CUDA_skv_attention_prompt_32_bf16 - SKV_CUDA_skv_attention_prompt_16_bf16;
    return (skv_cuda_kernel)((int)first + stride * (int)i_dim + (int)(type - SKV_KV_TYPE_BF16));
}

static void run_prompt(cuda_case *c, const attention_case *t, size_t i_dim,
                       skv_cuda_attention_args a)
{
    const uint32_t Dh = a.head_dim, n = describe(c, t, SKV_CUDA_PROMPT_ROWS(Dh), &a);
    device_launch(kernel_of(SKV_CUDA_skv_attention_prompt_16_bf16, i_dim, t->cache.type),
                  (device_grid){n, (uint32_t)t->n_kv_heads, 1,
                                skv_cuda_prompt_shared(Dh, (uint32_t)t->cache.type)},
                  &a);
}

static void run_decode(cuda_case *c, const attention_case *t, size_t i_dim,
                       skv_cuda_attention_args a)
{
    const uint32_t Dh = a.head_dim, n = describe(c, t, SKV_CUDA_DECODE_ROWS, &a);
    const size_t n_parts = t->n_rows * a.n_heads * PAGES;
    a.n_pages = (uint32_t)(1 + cuda_below(c, PAGES));
    a.n_splits = (uint32_t)skv_ceil_div(PAGES, a.n_pages);
    a.part_o = cuda_device(c, n_parts * Dh * sizeof *a.part_o);
    a.part_ml = cuda_device(c, n_parts * 2 * sizeof *a.part_ml);
    device_launch(kernel_of(SKV_CUDA_skv_attention_decode_16_bf16, i_dim, t->cache.type),
                  (device_grid){n, (uint32_t)t->n_kv_heads, a.n_splits,
                                skv_cuda_decode_shared(Dh, (uint32_t)t->cache.type)},
                  &a);
    if (a.n_splits == 1) return;
    device_launch(SKV_CUDA_skv_attention_merge,
                  (device_grid){(uint32_t)t->n_rows, (uint32_t)skv_ceil_div(a.n_heads, 4), 1, 0},
                  &a);
}

/* Both kernels of a size of heads and a type of pages. */
static void check_kernels(cuda_case *c, size_t i_dim, size_t head_dim, skv_kv_type type)
{
    char what[80];
    for (int few = 0; few < 2; few++) {
        const attention_case t = random_attention(c, head_dim, type, few ? FEW : ANY);
        const cuda_rows out = cuda_new_rows(c, SKV_CUDA_BF16, true, t.n_rows, t.q.n);
        const double *want = attention_in_double(c, &t);
        (void)snprintf(what, sizeof what, "%s: %zu numbers a head, pages of type %d",
                       few ? "attention_decode" : "attention_prompt", head_dim, (int)type);
        c->what = what;
        if (few) {
            run_decode(c, &t, i_dim, args_of(c, &t, &out));
        } else {
            run_prompt(c, &t, i_dim, args_of(c, &t, &out));
        }
        cuda_near(c, cuda_fetch_rows(c, &out), want, t.n_rows * t.q.n, 6e-3);
        cuda_case_end(c);
    }
}

/* The kernel of pages of f32, whose blocks may have few pairs. */
static void check_exact(cuda_case *c, size_t head_dim, bool few)
{
    const attention_case t = random_attention(c, head_dim, SKV_KV_TYPE_F32, few ? FEW : ANY);
    const cuda_rows out = cuda_new_rows(c, SKV_CUDA_F32, false, t.n_rows, t.q.n);
    const double *want = attention_in_double(c, &t);
    skv_cuda_attention_args a = args_of(c, &t, &out);
    const uint32_t n = describe(c, &t, SKV_CUDA_PROMPT_ROWS(head_dim), &a);
    c->what = "attention_exact";
    device_launch(
        SKV_CUDA_skv_attention_exact,
        (device_grid){n, (uint32_t)t.n_kv_heads, 1, skv_cuda_exact_shared((uint32_t)head_dim)}, &a);
    cuda_near(c, cuda_fetch_rows(c, &out), want, t.n_rows * t.q.n, 2e-6);
    cuda_case_end(c);
}

/* The kernel of prompts with wgmma; rings of its tiles go round twice in long cases. */
static void check_wgmma(cuda_case *c, skv_cuda_kernel first, size_t head_dim, skv_kv_type type)
{
    char what[80];
    for (int is_long = 0; is_long < 2; is_long++) {
        const attention_case t = random_attention(c, head_dim, type, is_long ? LONG : ANY);
        const cuda_rows out = cuda_new_rows(c, SKV_CUDA_BF16, true, t.n_rows, t.q.n);
        const double *want = attention_in_double(c, &t);
        skv_cuda_attention_args a = args_of(c, &t, &out);
        const uint32_t n = describe(c, &t, SKV_CUDA_WGMMA_ROWS, &a), of = a.kv.type;
        (void)snprintf(what, sizeof what, "attention_wgmma: %zu numbers a head, pages of type %d",
                       head_dim, (int)type);
        c->what = what;
        device_launch(
            (skv_cuda_kernel)((int)first + (int)(type - SKV_KV_TYPE_BF16)),
            (device_grid){n, (uint32_t)t.n_kv_heads, 1, skv_cuda_wgmma_shared(a.head_dim, of)}, &a);
        cuda_near(c, cuda_fetch_rows(c, &out), want, t.n_rows * t.q.n, 6e-3);
        cuda_case_end(c);
    }
}

static void check_all_wgmma(cuda_case *c)
{
    for (skv_kv_type type = SKV_KV_TYPE_BF16; type <= SKV_KV_TYPE_INT8; type++) {
        check_wgmma(c, SKV_CUDA_skv_attention_wgmma_64_bf16, 64, type);
        check_wgmma(c, SKV_CUDA_skv_attention_wgmma_128_bf16, 128, type);
        check_wgmma(c, SKV_CUDA_skv_attention_wgmma_256_bf16, 256, type);
    }
}

void check_cuda_attention(cuda_case *c)
{
    static const size_t dims[] = {16, 32, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (skv_kv_type type = SKV_KV_TYPE_BF16; type <= SKV_KV_TYPE_INT8; type++) {
            check_kernels(c, i, dims[i], type);
        }
        check_exact(c, dims[i], i % 2 == 0);
    }
    if (device_has_wgmma()) check_all_wgmma(c);
}

/* ---- votes ---- */

/* What the tokens [first, first + n) of item 0 add to votes [heads][ld]. */
static void votes_in_double(cuda_case *c, const attention_case *t, const skv_cuda_votes_args *a,
                            double *votes)
{
    double *w = cuda_host(c, MAX_PAGES * SKV_PAGE_ROWS * sizeof *w);
    for (size_t j = a->first; j < a->first + a->n; j++) {
        for (size_t g = 0; g < a->n_heads; g++) {
            const size_t end = weights_of(t, 0, j, j, g, w);
            double *to = votes + (a->by_query_head ? g : g / t->n_group) * a->votes_ld;
            for (size_t r = 0; r < end; r++) to[r] += w[r];
        }
    }
}

static void run_votes(const skv_cuda_votes_args *a, size_t n_kv_heads)
{
    const uint32_t shared = skv_cuda_votes_shared(a->head_dim, a->n_group);
    device_launch(SKV_CUDA_skv_vote_norms, (device_grid){a->n, a->n_heads, 1, shared}, a);
    device_launch(SKV_CUDA_skv_vote_sums,
                  (device_grid){a->votes_ld / SKV_CUDA_PAGE_ROWS, (uint32_t)n_kv_heads, 1, shared},
                  a);
}

void check_cuda_votes(cuda_case *c)
{
    static const size_t dims[] = {16, 32, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const skv_kv_type type = SKV_KV_TYPE_F32 + (skv_kv_type)(i % 4);
        const attention_case t = random_attention(c, dims[i], type, cuda_one_in(c, 2) ? FEW : ANY);
        const size_t n_heads = t.n_kv_heads * t.n_group, ld = PAGES * SKV_PAGE_ROWS;
        const cuda_rows none = {.n = 0};
        const skv_cuda_attention_args of = args_of(c, &t, &none);
        skv_cuda_votes_args a = {.q = of.q, .kv = of.kv, .sinks = of.sinks, .n_heads = of.n_heads};
        a.item = (skv_cuda_item){.table = cuda_table(&t.cache, 0),
                                 .n_q = (uint32_t)t.n_q[0],
                                 .n_past = (uint32_t)t.n_past[0]};
        a.first = (uint32_t)cuda_below(c, t.n_q[0]);
        a.n = (uint32_t)(1 + cuda_below(c, t.n_q[0] - a.first));
        a.n_group = of.n_group, a.head_dim = of.head_dim, a.window = of.window;
        a.scale = of.scale, a.softcap = of.softcap;
        a.by_query_head = cuda_one_in(c, 2);
        a.votes_ld = (uint32_t)ld;
        a.norms = cuda_device(c, a.n * n_heads * sizeof *a.norms);
        const float *before = cuda_normals(c, n_heads * ld, 0.1);
        double *want = cuda_host(c, n_heads * ld * sizeof *want);
        for (size_t k = 0; k < n_heads * ld; k++) want[k] = (double)before[k];
        a.votes = cuda_upload(c, before, n_heads * ld * sizeof *before);
        votes_in_double(c, &t, &a, want);
        c->what = "votes";
        run_votes(&a, t.n_kv_heads);
        const float *got = cuda_download(c, a.votes, n_heads * ld * sizeof *got);
        cuda_near(c, got, want, n_heads * ld, 1e-5);
        cuda_case_end(c);
    }
}
