/* Quantising with a text: gathers the second moments of the products' inputs, and rounds by them.
 * See quantizer.h. */
#include <stdlib.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "train/calibrate.h"
#include "train/gemm.h"
#include "train/quantize/quantizer.h"

enum { TOKENS_LEAST = 256 };

/* The input that some items share. */
typedef struct gram {
    size_t layer;
    skv_product product;
    size_t K;
    float *sum; /* [K, K], owned: of x x^T; NULL: not in this pass */
} gram;

typedef struct gram_list {
    skv_quantizer *q;
    skv_calibration *text; /* owned */
    skv_kernels kernels;
    skv_gemm *gemm;       /* owned */
    gram *grams;          /* [n], owned */
    size_t n, first, end; /* those of this pass: [first, end) */
} gram_list;

/* ---- which inputs there are ---- */

/* The stack reads one input, which is identified by the first layer that it writes. */
static gram *find_gram(const gram_list *list, size_t layer, skv_product product)
{
    for (size_t i = 0; i < list->n; i++) {
        gram *g = &list->grams[i];
        if (g->product == product && (g->layer == layer || product == SKV_PRODUCT_STACK)) return g;
    }
    return NULL;
}

/* Orders by layer and, within a layer (or the stack and the layers it serves), readers of another's
 * output first: scaling their columns divides the rows of that output's matrix, which must not be
 * rounded yet. */
static int by_layer(const void *a, const void *b)
{
    static const int places[] = {
        [SKV_PRODUCT_O] = 0,       [SKV_PRODUCT_QKV] = 1, [SKV_PRODUCT_DOWN] = 2,
        [SKV_PRODUCT_GATE_UP] = 3, [SKV_PRODUCT_KV] = 4,  [SKV_PRODUCT_EMBED] = 5,
        [SKV_PRODUCT_STACK] = 6};
    const gram *x = a, *y = b;
    const bool x_last = x->product == SKV_PRODUCT_STACK, y_last = y->product == SKV_PRODUCT_STACK;
    if (x_last != y_last) return x_last ? 1 : -1;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return places[x->product] < places[y->product] ? -1 : 1;
}

static void list_grams(gram_list *list)
{
    const skv_quantizer *q = list->q;
    for (size_t i = 0; i < q->n; i++) {
        size_t layer;
        skv_product product;
        if (!skv_quantize_is_quantized(q, &q->items[i])) continue;
        if (!skv_quantize_find_input(&q->items[i], &layer, &product)) continue;
        gram *known = find_gram(list, layer, product);
        if (known) {
            known->layer = skv_min_size(known->layer, layer);
            continue;
        }
        list->grams[list->n++] =
            (gram){layer, product, skv_tensor_columns(q->items[i].tensor), NULL};
    }
    qsort(list->grams, list->n, sizeof *list->grams, by_layer);
}

/* ---- sums over the text ---- */

static void take_rows(void *user, size_t i_layer, skv_product product, const float *x,
                      size_t n_rows, size_t n)
{
    const gram_list *list = user;
    for (size_t i = list->first; i < list->end; i++) {
        const gram *g = &list->grams[i];
        if (g->layer != i_layer || g->product != product || g->K != n) continue;
        skv_gemm_run(list->gemm, &(skv_gemm_args){.c = g->sum,
                                                  .ldc = n,
                                                  .a = x,
                                                  .lda = n,
                                                  .b = x,
                                                  .ldb = n,
                                                  .M = n,
                                                  .N = n,
                                                  .K = n_rows,
                                                  .a_t = true,
                                                  .add = true});
    }
}

/* Chooses as many as fit: the sums and, in f64, one factor may take three quarters of the available
 * memory. */
static skv_status begin_pass(gram_list *list, skv_error *err)
{
    const size_t available = skv_memory_available() / 4 * 3;
    size_t sums = 0, factor = 0;
    list->end = list->first;
    while (list->end < list->n) {
        const size_t square = list->grams[list->end].K * list->grams[list->end].K;
        const size_t next = skv_max_size(factor, square * sizeof(double));
        if (sums + square * sizeof(float) + next > available) break;
        sums += square * sizeof(float);
        factor = next;
        list->end++;
    }
    const double K = (double)list->grams[list->first].K, MIB = 1048576.0;
    SKV_REQUIRE(list->end > list->first, err, SKV_MEMORY,
                "memory: moments of %.0f columns take %.0f MiB, %.0f MiB are available", K,
                K * K * (sizeof(float) + sizeof(double)) / MIB, (double)available / MIB);
    for (size_t i = list->first; i < list->end; i++) {
        gram *g = &list->grams[i];
        g->sum = skv_map_zero(g->K * g->K * sizeof *g->sum);
        SKV_REQUIRE(g->sum, err, SKV_MEMORY, "quantize: no memory for moments of %zu columns",
                    g->K);
    }
    return SKV_OK;
}

static void drop_gram(gram *g)
{
    if (g->sum) skv_unmap(g->sum, g->K * g->K * sizeof *g->sum);
    g->sum = NULL;
}

/* ---- rounding by them ---- */

static skv_status round_gram(gram_list *list, gram *g, skv_error *err)
{
    skv_quantizer *q = list->q;
    skv_compensation c;
    SKV_TRY(skv_compensation_init(&c, q->pool, g->sum, g->K, err));
    c.nearest = q->options->method == SKV_QUANTIZE_AWQ;
    skv_status status = SKV_OK;
    q->n_inputs++;
    if (q->options->method != SKV_QUANTIZE_GPTQ) {
        status = skv_quantize_scale_input(q, &c, g->layer, g->product, err);
    }
    for (size_t i = 0; i < q->n && status == SKV_OK; i++) {
        size_t layer;
        skv_product product;
        skv_quantize_item *item = &q->items[i];
        if (!skv_quantize_is_quantized(q, item) || !skv_quantize_find_input(item, &layer, &product))
            continue;
        if (find_gram(list, layer, product) != g || skv_tensor_columns(item->tensor) != g->K) {
            continue;
        }
        status = skv_quantize_round_item(q, item, &c, err);
    }
    skv_compensation_release(&c);
    drop_gram(g);
    return status;
}

/* Half of the work is the text's. */
static void show_progress(const gram_list *list, double share)
{
    const skv_quantize_options *o = list->q->options;
    if (o->progress) o->progress(o->user, share / (double)list->n);
}

static void read_progress(void *user, double share)
{
    const gram_list *list = user;
    show_progress(list, (double)list->first + share / 2 * (double)(list->end - list->first));
}

static skv_status run_pass(gram_list *list, size_t *n_tokens, skv_error *err)
{
    const skv_calibration_sink sink = {
        .on_product = take_rows, .user = list, .progress = read_progress, .progress_user = list};
    SKV_TRY(begin_pass(list, err));
    SKV_TRY(skv_calibration_run(list->text, &sink, n_tokens, err));
    SKV_REQUIRE(*n_tokens >= TOKENS_LEAST, err, SKV_ARGUMENT,
                "%s: a text of %zu tokens, expected at least %d", list->q->options->data[0],
                *n_tokens, TOKENS_LEAST);
    for (size_t i = list->first; i < list->end; i++) {
        SKV_TRY(round_gram(list, &list->grams[i], err));
        show_progress(list, (double)(list->first + i + 1 + list->end - list->first) / 2 +
                                (double)list->first / 2);
    }
    list->first = list->end;
    return SKV_OK;
}

static skv_status run(gram_list *list, const char *path, size_t *n_tokens, skv_error *err)
{
    skv_quantizer *q = list->q;
    const skv_quantize_options *o = q->options;
    const skv_calibration_options options = {
        .data = o->data, .n_data = o->n_data, .threads = o->threads, .weights = SKV_WEIGHTS_AUTO};
    list->grams = skv_alloc_zero(q->n, sizeof *list->grams);
    SKV_REQUIRE(list->grams, err, SKV_MEMORY, "quantize: no memory for %zu moments", q->n);
    list_grams(list);
    skv_kernels_init(&list->kernels, SKV_CPU_LEVEL_BEST, skv_cpu_verified());
    SKV_TRY(skv_gemm_create(q->pool, &list->kernels.f32, &list->gemm, err));
    SKV_TRY(skv_calibration_open(path, q->source, &options, &list->text, err));
    while (list->first < list->n) SKV_TRY(run_pass(list, n_tokens, err));
    return SKV_OK;
}

skv_status skv_quantize_with_text(skv_quantizer *q, const char *path, size_t *n_tokens,
                                  skv_error *err)
{
    gram_list list = {.q = q};
    const skv_status status = run(&list, path, n_tokens, err);
    for (size_t i = 0; i < list.n; i++) drop_gram(&list.grams[i]);
    skv_free(list.grams);
    skv_gemm_free(list.gemm);
    skv_calibration_close(list.text);
    return status;
}
