/*
 * Peaks of a GPU, as rows of a Markdown table: products by cuBLASLt in the shapes of Llama-3.1-8B,
 * and the kernels of attention, prompts in operations and decoding in bytes. Prompts have a row
 * with wgmma and one with mma.sync on a card that has both. Last come copies from pinned memory.
 *
 *     tool_cuda_peaks [tiny]
 *
 * SKV_CUDA_IMAGE names the kernels as nvcc has compiled them (the target cuda_kernels).
 * Each number is of as many launches as take a fifth of a second, in one stream. Operands are
 * random, since a card is faster with zeros, and the weights of consecutive products lie apart, so
 * that none comes from the card's cache. `tiny` has shapes for an emulated card.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_upload.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system.h"
#include "device_driver.h"
#include "kernels/kv_page.h"

enum {
    IMAGE_BYTES_MAX = 64 << 20,
    RANDOM_BYTES = 1 << 20,
    HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 128
};
enum { BLOCKS_WANTED = 512, LEAST_PAGES = 2 }; /* cuda_attention.c cuts decoding so */

typedef struct bench {
    skv_cuda_device device;
    bool tiny;
    unsigned char *random; /* [RANDOM_BYTES] of the host */
    double seconds;        /* for a number */
} bench;

typedef void launch_fn(bench *b, void *user, size_t i);

static void give_up(const char *text)
{
    (void)fprintf(stderr, "tool_cuda_peaks: %s\n", text);
    exit(1);
}

static void settle(bench *b)
{
    skv_error err;
    if (skv_cuda_wait(&b->device, &err) != SKV_OK) give_up(err.text);
}

/* Seconds of a launch. */
static double time_of(bench *b, launch_fn *launch, void *user)
{
    size_t n = 1, i = 0;
    launch(b, user, i++);
    settle(b);
    for (;;) {
        const uint64_t begun = skv_clock_ns();
        for (size_t k = 0; k < n; k++) launch(b, user, i++);
        settle(b);
        const double s = (double)(skv_clock_ns() - begun) * 1e-9;
        if (s >= b->seconds) return s / (double)n;
        n *= s > b->seconds / 8 ? 2 : 8;
    }
}

/* Memory of the device with random numbers: bf16, or bytes as they come where they are codes. */
static void *new_random(bench *b, size_t n_bytes)
{
    void *at = NULL;
    skv_error err;
    if (skv_cuda_new(&b->device, n_bytes, &at, &err) != SKV_OK) give_up(err.text);
    for (size_t i = 0; i < n_bytes; i += RANDOM_BYTES) {
        skv_cuda_put(&b->device, (unsigned char *)at + i, b->random,
                     skv_min_size(RANDOM_BYTES, n_bytes - i));
    }
    settle(b);
    return at;
}

/* bf16 numbers of [0.5, 1) and both signs. As e4m3 or int8 their bytes are numbers too. */
static void fill_random(bench *b)
{
    skv_rng rng;
    skv_rng_init(&rng, 1);
    b->random = skv_alloc_zero(RANDOM_BYTES, 1);
    if (!b->random) give_up("out of memory");
    for (size_t i = 0; i < RANDOM_BYTES / 2; i++) {
        const uint64_t r = skv_rng_next(&rng);
        const uint16_t bits = (uint16_t)(0x3f00u | (r & 0x7e) | (r >> 16 & 1) << 15);
        memcpy(b->random + 2 * i, &bits, sizeof bits);
    }
}

/* ---- copies ---- */

typedef struct copy {
    skv_cuda_upload upload;
    unsigned char *host; /* pinned, or NULL: by pieces, as weights are loaded */
    void *to;            /* [n_bytes] */
    size_t n_bytes;
} copy;

static void launch_copy(bench *b, void *user, size_t i)
{
    copy *c = user;
    (void)i;
    if (c->host) {
        skv_cuda_put(&b->device, c->to, c->host, c->n_bytes);
        return;
    }
    for (size_t at = 0; at < c->n_bytes; at += SKV_CUDA_PIECE_BYTES) {
        (void)skv_cuda_upload_piece(&c->upload);
        skv_cuda_upload_send(&c->upload, (unsigned char *)c->to + at, 0, SKV_CUDA_PIECE_BYTES);
        skv_cuda_upload_turn(&c->upload);
    }
}

/* What the bus has, and what is left of it for weights where packing takes no time. */
static void measure_copies(bench *b)
{
    static const char *const names[] = {"at once", "as weights are loaded"};
    copy c = {.n_bytes = (size_t)(b->tiny ? 2 : 64) * SKV_CUDA_PIECE_BYTES};
    void *host = NULL;
    skv_error err;
    c.to = new_random(b, c.n_bytes);
    if (skv_cuda_upload_open(&c.upload, &b->device, &err) != SKV_OK) give_up(err.text);
    if (skv_cuda_host_new(&b->device, c.n_bytes, &host, &err) != SKV_OK) give_up(err.text);
    memset(host, 1, c.n_bytes);
    for (size_t i = 0; i < 2; i++) {
        c.host = i == 0 ? host : NULL;
        const double s = time_of(b, launch_copy, &c);
        printf("| copy to the card, %s | bytes | | | %.3g TB/s |\n", names[i],
               1e-12 * (double)c.n_bytes / s);
    }
    skv_cuda_host_delete(&b->device, host);
    skv_cuda_upload_close(&c.upload);
    skv_cuda_delete(&b->device, c.to);
}

/* ---- products ---- */

typedef struct product {
    skv_cuda_product_shape shape;
    skv_cuda_operands operands;
    size_t n_copies, w_bytes; /* of the weights */
    bool refused;
} product;

static void launch_product(bench *b, void *user, size_t i)
{
    product *p = user;
    skv_cuda_operands o = p->operands;
    skv_error err;
    o.w = (const unsigned char *)o.w + i % p->n_copies * p->w_bytes;
    const skv_status status =
        skv_cuda_multiply(&b->device.blas, p->shape, &o, b->device.stream, &err);
    if (status == SKV_UNSUPPORTED) p->refused = true;
    if (status != SKV_OK && status != SKV_UNSUPPORTED) give_up(err.text);
}

static void measure_product(bench *b, const char *name, uint32_t M, uint32_t N, uint32_t K,
                            bool fp8)
{
    const size_t size = fp8 ? 1 : 2, w_bytes = (size_t)N * K * size, apart = (size_t)256 << 20;
    product p = {
        .shape = {M, N, K, K, K, N, fp8 ? SKV_BLAS_E4M3 : SKV_BLAS_BF16, false, false},
        .n_copies = b->tiny ? 1 : skv_ceil_div(apart, w_bytes),
        .w_bytes = w_bytes,
    };
    void *w = new_random(b, w_bytes * p.n_copies), *x = new_random(b, (size_t)M * K * size);
    void *y = new_random(b, (size_t)M * N * 2), *scales = new_random(b, ((size_t)M + N) * 4);
    p.operands = (skv_cuda_operands){.y = y, .x = x, .w = w};
    if (fp8) p.operands.x_scales = p.operands.w_scales = scales;
    const double s = time_of(b, launch_product, &p);
    printf("| product, %s | %s | %u | ", name, fp8 ? "fp8" : "bf16", M);
    if (p.refused) {
        printf("refused | |\n");
    } else {
        printf("%.3g TFLOP/s | %.3g TB/s |\n", 2e-12 * M * N * K / s,
               1e-12 * ((double)w_bytes + (double)M * (K * (double)size + 2.0 * N)) / s);
    }
    void *const blocks[] = {w, x, y, scales};
    for (size_t i = 0; i < 4; i++) skv_cuda_delete(&b->device, blocks[i]);
}

static void measure_products(bench *b)
{
    static const struct {
        const char *name;
        uint32_t N, K;
    } shapes[] = {{"qkv", 6144, 4096},
                  {"o", 4096, 4096},
                  {"gate and up", 28672, 4096},
                  {"down", 4096, 14336}};
    static const uint32_t rows[] = {1, 64, 512, 2048, 8192};
    const uint32_t by = b->tiny ? 128 : 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t k = 0; k < sizeof rows / sizeof *rows && !(b->tiny && k > 1); k++) {
            for (int fp8 = 0; fp8 < 2; fp8++) {
                const uint32_t M = b->tiny ? rows[k] / 4 + 1 : rows[k];
                measure_product(b, shapes[i].name, M, shapes[i].N / by, shapes[i].K / by, fp8 == 1);
            }
        }
    }
}

/* ---- attention ---- */

typedef struct attention {
    skv_cuda_kernel kernel;
    skv_cuda_grid grid;
    skv_cuda_attention_args args;
} attention;

static void launch_attention(bench *b, void *user, size_t i)
{
    const attention *a = user;
    (void)i;
    skv_cuda_launch(&b->device, a->kernel, a->grid, &a->args);
    if (a->args.n_splits < 2) return;
    const skv_cuda_grid grid = {.x = a->grid.x, .y = HEADS / 4};
    skv_cuda_launch(&b->device, SKV_CUDA_skv_attention_merge, grid, &a->args);
}

static void *put_list(bench *b, const void *list, size_t n_bytes)
{
    void *at = NULL;
    skv_error err;
    if (skv_cuda_new(&b->device, n_bytes, &at, &err) != SKV_OK) give_up(err.text);
    skv_cuda_put(&b->device, at, list, n_bytes);
    settle(b);
    return at;
}

/* A table and an item for each of n sequences, and their blocks. A page has all heads. */
typedef struct lists {
    uint32_t *tables;
    skv_cuda_item *items;
    skv_cuda_block *blocks;
    skv_cuda_track tracks[KV_HEADS];
    size_t table_words, n_blocks;
} lists;

static lists make_lists(size_t n_seqs, uint32_t n_q, uint32_t n_past, size_t page_bytes)
{
    const size_t n_pages = skv_ceil_div((size_t)n_past + n_q, SKV_PAGE_ROWS);
    const uint32_t pairs = n_q * (HEADS / KV_HEADS), step = SKV_CUDA_WGMMA_ROWS;
    lists l = {.table_words = KV_HEADS + n_pages};
    l.tables = skv_alloc_zero(n_seqs * l.table_words, sizeof *l.tables);
    l.items = skv_alloc_zero(n_seqs, sizeof *l.items);
    l.blocks = skv_alloc_zero(n_seqs * skv_ceil_div(pairs, step), sizeof *l.blocks);
    if (!l.tables || !l.items || !l.blocks) give_up("out of memory");
    for (uint32_t h = 0; h < KV_HEADS; h++) {
        l.tracks[h] = (skv_cuda_track){KV_HEADS, h, (uint32_t)(h * page_bytes)};
    }
    for (size_t s = 0; s < n_seqs; s++) {
        for (size_t i = 0; i < n_pages; i++) { /* mixed, but each once */
            const size_t page = s * n_pages + i, odd = n_seqs * n_pages;
            l.tables[s * l.table_words + KV_HEADS + i] = (uint32_t)((page * 7919) % odd);
        }
        l.items[s] = (skv_cuda_item){.row0 = (uint32_t)(s * n_q), .n_q = n_q, .n_past = n_past};
        for (uint32_t k = (pairs + step - 1) / step; k-- > 0;) { /* as cuda_attention.c has them */
            l.blocks[l.n_blocks++] = (skv_cuda_block){.item = (uint32_t)s, .row = k * step};
        }
    }
    return l;
}

static void free_lists(lists *l)
{
    skv_free(l->tables);
    skv_free(l->items);
    skv_free(l->blocks);
}

/* Of decoding, as cuda_attention.c cuts it. */
static void cut(attention *a, size_t n_seqs, size_t n_pages)
{
    const size_t n = BLOCKS_WANTED / (n_seqs * KV_HEADS);
    if (n < 2) return;
    a->args.n_pages = (uint32_t)skv_max_size(LEAST_PAGES, skv_ceil_div(n_pages, n));
    a->args.n_splits = a->grid.z = (uint32_t)skv_ceil_div(n_pages, a->args.n_pages);
}

/* The kernels of attention. */
typedef enum form { DECODE, MMA, WGMMA } form;

static void choose_kernel(attention *a, form of, skv_kv_type type)
{
    static const int firsts[] = {SKV_CUDA_skv_attention_decode_128_bf16,
                                 SKV_CUDA_skv_attention_prompt_128_bf16,
                                 SKV_CUDA_skv_attention_wgmma_128_bf16};
    a->kernel = (skv_cuda_kernel)(firsts[of] + (int)type - SKV_CUDA_KV_BF16);
    a->grid.shared = of == DECODE ? skv_cuda_decode_shared(HEAD_DIM, a->args.kv.type)
                     : of == MMA  ? skv_cuda_prompt_shared(HEAD_DIM, a->args.kv.type)
                                  : skv_cuda_wgmma_shared(HEAD_DIM, a->args.kv.type);
}

static void measure_attention(bench *b, skv_kv_type type, form of, size_t n_seqs, uint32_t n_q,
                              uint32_t n_past)
{
    static const char *const names[] = {"f32", "bf16", "fp8", "int8"};
    static const char *const forms[] = {"", ", mma.sync", ", wgmma"};
    const size_t head_bytes = skv_kv_page_bytes(type, HEAD_DIM);
    const size_t n_pages = skv_ceil_div((size_t)n_past + n_q, SKV_PAGE_ROWS);
    const size_t row_bytes = (size_t)HEADS * HEAD_DIM * 2;
    lists l = make_lists(n_seqs, n_q, n_past, head_bytes);
    void *tables = put_list(b, l.tables, n_seqs * l.table_words * sizeof *l.tables);
    for (size_t s = 0; s < n_seqs; s++) {
        l.items[s].table = (const uint32_t *)tables + s * l.table_words;
    }
    void *const memory[] = {
        tables,
        put_list(b, l.items, n_seqs * sizeof *l.items),
        put_list(b, l.blocks, l.n_blocks * sizeof *l.blocks),
        put_list(b, l.tracks, sizeof l.tracks),
        new_random(b, n_seqs * n_pages * KV_HEADS * head_bytes),
        new_random(b, n_seqs * n_q * row_bytes),
        new_random(b, n_seqs * n_q * row_bytes),
        new_random(b, (size_t)8192 * HEAD_DIM * 4),
        new_random(b, (size_t)8192 * 2 * 4),
    };
    attention a = {
        .grid = {.x = (uint32_t)l.n_blocks, .y = KV_HEADS, .z = 1},
        .args = {.out = {memory[5], HEADS * HEAD_DIM, SKV_CUDA_BF16, 1, 0},
                 .q = {memory[6], HEADS * HEAD_DIM, SKV_CUDA_BF16, 1, 0},
                 .items = memory[1],
                 .blocks = memory[2],
                 .kv = {memory[4], memory[3], (uint32_t)(KV_HEADS * head_bytes), (uint32_t)type},
                 .n_heads = HEADS,
                 .n_group = HEADS / KV_HEADS,
                 .head_dim = HEAD_DIM,
                 .scale = 0.088F,
                 .part_o = memory[7],
                 .part_ml = memory[8],
                 .n_splits = 1},
    };
    choose_kernel(&a, of, type);
    if (of == DECODE) cut(&a, n_seqs, n_pages);
    const double s = time_of(b, launch_attention, &a);
    const double seen = (double)n_seqs * n_q * (n_past + (n_q + 1) / 2.0);
    const double bytes = (double)n_seqs * (double)n_pages * KV_HEADS * (double)head_bytes;
    printf("| attention, %zu x %u behind %u%s | %s | %zu | %.3g TFLOP/s | %.3g TB/s |\n", n_seqs,
           n_q, n_past, forms[of], names[type], n_seqs * n_q, 4e-12 * HEADS * HEAD_DIM * seen / s,
           1e-12 * bytes / s);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        skv_cuda_delete(&b->device, memory[i]);
    }
    free_lists(&l);
}

static void measure_all_attention(bench *b)
{
    static const struct {
        size_t n_seqs;
        uint32_t n_q, n_past;
    } shapes[] = {{4, 2048, 0},  {1, 8192, 0},  {1, 32768, 0}, {1, 1, 8191},
                  {1, 1, 32767}, {16, 1, 2047}, {64, 1, 2047}, {64, 1, 8191}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int type = SKV_KV_TYPE_BF16; type <= SKV_KV_TYPE_INT8; type++) {
            if (b->tiny && i > 0 && i != 3) continue;
            const uint32_t n_q = b->tiny && i == 0 ? 64 : shapes[i].n_q;
            const bool decodes = n_q * (HEADS / KV_HEADS) <= SKV_CUDA_DECODE_ROWS;
            for (int of = decodes ? DECODE : MMA; of <= (decodes ? DECODE : WGMMA); of++) {
                if (of == WGMMA && !b->device.wgmma) continue;
                measure_attention(b, (skv_kv_type)type, (form)of, b->tiny ? 1 : shapes[i].n_seqs,
                                  n_q, b->tiny ? shapes[i].n_past / 64 : shapes[i].n_past);
            }
        }
    }
}

int main(int argc, char **argv)
{
    bench b = {.tiny = argc == 2 && strcmp(argv[1], "tiny") == 0};
    skv_error err;
    if (argc != 1 + b.tiny) give_up("usage: tool_cuda_peaks [tiny]");
    void *image = device_image();
    if (skv_cuda_device_open(&b.device, 0, image, &err) != SKV_OK) give_up(err.text);
    free(image);
    b.seconds = b.tiny ? 0 : 0.2;
    fill_random(&b);
    printf("| what | type | rows | speed | memory |\n|---|---|--:|--:|--:|\n");
    measure_all_attention(&b);
    measure_products(&b);
    measure_copies(&b);
    skv_free(b.random);
    skv_cuda_device_close(&b.device);
    return 0;
}
