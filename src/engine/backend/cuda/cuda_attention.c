/* Places of queries, keys and values, attention and votes: kernels by the lists of a step. */
#include <assert.h>

#include "backend/cuda/cuda_backend.h"

/* A decoding step of few blocks is cut into portions until there are so many, or until a portion
 * has LEAST_PAGES. */
enum { BLOCKS_WANTED = SKV_CUDA_PART_PAIRS / SKV_CUDA_DECODE_ROWS, LEAST_PAGES = 2 };

static skv_cuda_kv kv_of(const skv_slots *slots, size_t slot)
{
    return (skv_cuda_kv){.pool = slots->spec.pool->at,
                         .tracks = slots->tracks + slots->spec.track0[slot],
                         .page_bytes = (uint32_t)slots->spec.pool->page_bytes,
                         .type = (uint32_t)slots->spec.type};
}

static size_t kv_heads(const skv_slots *slots, size_t slot)
{
    return slots->spec.track0[slot + 1] - slots->spec.track0[slot];
}

/* ---- place ---- */

static skv_cuda_head_norm head_norm(const skv_norm *norm)
{
    if (norm->joined) return (skv_cuda_head_norm){.weight = NULL};
    return (skv_cuda_head_norm){
        .weight = skv_cuda_floats_of(norm->weight), .eps = norm->eps, .offset = norm->offset};
}

/* Rows x [n_rows, n] as the kernel takes them: after a joined norm they are f32. */
static skv_cuda_rows normed_rows(skv_cuda_backend *be, skv_rows x, size_t n_rows, size_t n,
                                 const skv_norm *norm, float *scratch)
{
    const skv_cuda_rows y = skv_cuda_scratch(scratch, SKV_CUDA_F32, n);
    if (!norm->joined || !norm->weight.area) return skv_cuda_rows_of(x);
    skv_cuda_norm_to(be, y, x, n_rows, n, 0, norm, NULL);
    return y;
}

static void place(skv_backend *base, const skv_place_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_backend_step *step = a->step;
    const skv_cuda_set *set = &step->sets[a->set];
    const size_t n_q = a->q.area ? set->n_rows : 0, n_rows = a->k.area ? step->n_rows : 0;
    const size_t columns = a->n_heads * a->head_dim, kv_columns = a->n_kv_heads * a->head_dim;
    skv_cuda_place_args args = {.rows = set->rows,
                                .step = step->rows,
                                .n_q = (uint32_t)n_q,
                                .n_rows = (uint32_t)n_rows,
                                .n_copies = (uint32_t)a->n_copies,
                                .head_dim = (uint32_t)a->head_dim,
                                .v_eps = a->v_eps};
    if (n_q > 0) {
        args.n_heads = (uint32_t)a->n_heads;
        args.q = skv_cuda_rows_of(a->q);
        args.q_from = normed_rows(be, a->q, n_q, columns, &a->q_norm, be->product);
        args.q_norm = head_norm(&a->q_norm);
        args.q_angles = step->angles[a->q_angles].at;
    }
    if (n_rows > 0) {
        args.n_kv_heads = (uint32_t)a->n_kv_heads;
        args.k =
            normed_rows(be, a->k, n_rows, kv_columns, &a->k_norm, be->product + be->n_product / 2);
        args.v = skv_cuda_rows_of(a->v);
        args.k_norm = head_norm(&a->k_norm);
        args.k_angles = step->angles[a->k_angles].at;
        args.kv = kv_of(step->slots, a->slot);
    }
    const size_t heads = args.n_heads + 2 * (size_t)args.n_kv_heads;
    const skv_cuda_grid grid = {.x = (uint32_t)skv_max_size(n_q, n_rows),
                                .y = (uint32_t)skv_ceil_div(heads, 4),
                                .shared = (uint32_t)(4 * a->head_dim * sizeof(float))};
    if (grid.x > 0) skv_cuda_launch(&be->device, SKV_CUDA_skv_place_heads, grid, &args);
}

/* ---- attention ---- */

/* Whether all items have few pairs. */
static bool all_are_few(const skv_cuda_set *set, size_t n_group)
{
    size_t i = 0;
    while (i < set->n_items && set->host_items[i].n_q * n_group <= SKV_CUDA_DECODE_ROWS) i++;
    return i == set->n_items;
}

/* The kernel of prompts with wgmma for a size of heads, of pages of bf16; -1: there is none. */
static int wgmma_kernel(const skv_cuda_backend *be, size_t head_dim)
{
    if (!be->device.wgmma) return -1;
    switch (head_dim) {
    case 64: return SKV_CUDA_skv_attention_wgmma_64_bf16;
    case 128: return SKV_CUDA_skv_attention_wgmma_128_bf16;
    case 256: return SKV_CUDA_skv_attention_wgmma_256_bf16;
    default: return -1;
    }
}

/* Pairs of a block of a prompt. */
static size_t prompt_rows(const skv_cuda_backend *be, size_t head_dim, uint32_t type)
{
    const bool wgmma = type != SKV_CUDA_KV_F32 && wgmma_kernel(be, head_dim) >= 0;
    return wgmma ? SKV_CUDA_WGMMA_ROWS : SKV_CUDA_PROMPT_ROWS(head_dim);
}

/* Lists the blocks of a set's items: those of few pairs go to attention_decode. Those of a prompt
 * that see most rows come first, since the last ones to begin run beside idle multiprocessors.
 * Layers of one shape share a list: all slots have pages of one type. Where all items have few
 * pairs there is a list already. Another one goes to the device before what the step has launched
 * (cuda_graphs.h), unless that uses one in its place. */
static void list_blocks(skv_cuda_backend *be, const skv_backend_step *step, skv_row_set which,
                        size_t n_group, size_t head_dim)
{
    const skv_cuda_set *set = &step->sets[which];
    skv_cuda_blocks *of = &be->blocks_of;
    const size_t n_most = prompt_rows(be, head_dim, (uint32_t)step->slots->spec.type);
    if (of->step == step && of->serial == step->serial && of->set == which &&
        of->n_group == n_group && of->head_dim == head_dim) {
        if (of->at == be->blocks) of->used = skv_cuda_graphs_number(&be->device);
        return;
    }
    *of = (skv_cuda_blocks){.step = step,
                            .serial = step->serial,
                            .used = of->used,
                            .set = which,
                            .n_group = n_group,
                            .head_dim = head_dim};
    if (all_are_few(set, n_group)) {
        of->at = be->singles;
        of->n_decode = set->n_items;
        assert(of->n_decode <= be->n_singles);
        return;
    }
    size_t n = 0;
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < set->n_items; i++) {
            const size_t n_pairs = set->host_items[i].n_q * n_group;
            const bool few = n_pairs <= SKV_CUDA_DECODE_ROWS;
            if (few != (pass == 0)) continue;
            for (size_t k = few ? 1 : skv_ceil_div(n_pairs, n_most); k-- > 0;) {
                be->host_blocks[n++] =
                    (skv_cuda_block){.item = (uint32_t)i, .row = (uint32_t)(k * n_most)};
            }
        }
        if (pass == 0) of->n_decode = n;
    }
    of->n_prompt = n - of->n_decode;
    of->at = be->blocks;
    if (of->used == skv_cuda_graphs_number(&be->device)) skv_cuda_flush(&be->device);
    of->used = skv_cuda_graphs_number(&be->device);
    skv_cuda_put_first(&be->device, be->blocks, be->host_blocks, n * sizeof *be->blocks);
}

/* Pages of the longest item, or a few more: successive steps have the same number. */
static size_t most_pages(const skv_cuda_set *set)
{
    size_t n_rows = 0, unit = 1;
    for (size_t i = 0; i < set->n_items; i++) {
        n_rows = skv_max_size(n_rows, (size_t)set->host_items[i].n_past + set->host_items[i].n_q);
    }
    const size_t n_pages = skv_ceil_div(n_rows, SKV_PAGE_ROWS);
    while (n_pages > 8 * unit) unit *= 2;
    return skv_round_up(n_pages, unit);
}

/* attention_merge joins all rows, so portions are for sets without prompts. */
static void cut_portions(const skv_cuda_blocks *of, const skv_cuda_set *set, size_t n_kv_heads,
                         skv_cuda_attention_args *args)
{
    const size_t n_pages = most_pages(set), n_blocks = of->n_decode * n_kv_heads;
    const size_t n = n_blocks > 0 ? BLOCKS_WANTED / n_blocks : 0;
    if (of->n_prompt > 0 || n < 2) return;
    args->n_pages = (uint32_t)skv_max_size(LEAST_PAGES, skv_ceil_div(n_pages, n));
    args->n_splits = (uint32_t)skv_ceil_div(n_pages, args->n_pages);
}

/* The first kernel of a size of heads: prompts, then decoding, each by types of pages. */
static int first_kernel(size_t head_dim)
{
    switch (head_dim) {
    case 16: return SKV_CUDA_skv_attention_prompt_16_bf16;
    case 32: return SKV_CUDA_skv_attention_prompt_32_bf16;
    case 64: return SKV_CUDA_skv_attention_prompt_64_bf16;
    case 80: return SKV_CUDA_skv_attention_prompt_80_bf16;
    case 96: return SKV_CUDA_skv_attention_prompt_96_bf16;
    case 128: return SKV_CUDA_skv_attention_prompt_128_bf16;
    case 256: return SKV_CUDA_skv_attention_prompt_256_bf16;
    default: return -1;
    }
}

bool skv_cuda_has_heads_of(size_t head_dim)
{
    return first_kernel(head_dim) >= 0;
}

/* Pages of f32 have one kernel for all blocks. */
static void launch_exact(skv_cuda_backend *be, skv_cuda_attention_args *args, size_t n_kv_heads)
{
    const skv_cuda_blocks *of = &be->blocks_of;
    const skv_cuda_grid grid = {.x = (uint32_t)(of->n_decode + of->n_prompt),
                                .y = (uint32_t)n_kv_heads,
                                .shared = skv_cuda_exact_shared(args->head_dim)};
    args->blocks = of->at;
    skv_cuda_launch(&be->device, SKV_CUDA_skv_attention_exact, grid, args);
}

/* The blocks of prompts, `offset` kernels after the first of their size of heads. */
static void launch_prompts(skv_cuda_backend *be, skv_cuda_attention_args *args, size_t n_kv_heads,
                           int offset)
{
    const skv_cuda_blocks *of = &be->blocks_of;
    const int wgmma = wgmma_kernel(be, args->head_dim);
    const int first = wgmma >= 0 ? wgmma : first_kernel(args->head_dim);
    const uint32_t shared = wgmma >= 0 ? skv_cuda_wgmma_shared(args->head_dim, args->kv.type)
                                       : skv_cuda_prompt_shared(args->head_dim, args->kv.type);
    const skv_cuda_grid grid = {
        .x = (uint32_t)of->n_prompt, .y = (uint32_t)n_kv_heads, .shared = shared};
    args->blocks = of->at + of->n_decode;
    skv_cuda_launch(&be->device, (skv_cuda_kernel)(first + offset), grid, args);
}

static void launch_attention(skv_cuda_backend *be, skv_cuda_attention_args *args, size_t n_rows,
                             size_t n_kv_heads)
{
    const skv_cuda_blocks *of = &be->blocks_of;
    const int offset = (int)args->kv.type - SKV_CUDA_KV_BF16;
    args->blocks = of->at;
    if (of->n_decode > 0) {
        const skv_cuda_grid grid = {.x = (uint32_t)of->n_decode,
                                    .y = (uint32_t)n_kv_heads,
                                    .z = args->n_splits,
                                    .shared =
                                        skv_cuda_decode_shared(args->head_dim, args->kv.type)};
        skv_cuda_launch(&be->device, (skv_cuda_kernel)(first_kernel(args->head_dim) + offset + 3),
                        grid, args);
    }
    if (args->n_splits > 1) {
        const skv_cuda_grid grid = {.x = (uint32_t)n_rows,
                                    .y = (uint32_t)skv_ceil_div(args->n_heads, 4)};
        skv_cuda_launch(&be->device, SKV_CUDA_skv_attention_merge, grid, args);
    }
    if (of->n_prompt > 0) launch_prompts(be, args, n_kv_heads, offset);
}

static bool is_direct(const skv_cuda_rows *rows)
{
    return rows->type == SKV_CUDA_BF16 && rows->aligned;
}

/* Queries and results are bf16 in rows of whole 16 bytes; others go by way of scratch. */
static void attention(skv_backend *base, const skv_attention_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_backend_step *step = a->step;
    const skv_cuda_set *set = &step->sets[a->set];
    const size_t n_kv_heads = kv_heads(step->slots, a->slot), columns = a->n_heads * a->head_dim;
    const skv_cuda_rows q = skv_cuda_rows_of(a->q), out = skv_cuda_rows_of(a->out);
    skv_cuda_attention_args args = {.q = q,
                                    .out = out,
                                    .items = set->items,
                                    .sinks = skv_cuda_floats_of(a->sinks),
                                    .kv = kv_of(step->slots, a->slot),
                                    .n_heads = (uint32_t)a->n_heads,
                                    .n_group = (uint32_t)(a->n_heads / n_kv_heads),
                                    .head_dim = (uint32_t)a->head_dim,
                                    .window = (uint32_t)a->window,
                                    .scale = a->scale,
                                    .softcap = a->softcap,
                                    .part_o = be->part_o,
                                    .part_ml = be->part_ml,
                                    .n_splits = 1};
    list_blocks(be, step, a->set, args.n_group, a->head_dim);
    if (args.kv.type == SKV_CUDA_KV_F32) {
        launch_exact(be, &args, n_kv_heads);
        return;
    }
    cut_portions(&be->blocks_of, set, n_kv_heads, &args);
    if (!is_direct(&q)) {
        args.q = skv_cuda_scratch(be->operand, SKV_CUDA_BF16, columns);
        skv_cuda_move(be, (skv_cuda_move_args){.y = args.q, .x = q, .factor = 1}, set->n_rows,
                      columns);
    }
    if (!is_direct(&out)) args.out = skv_cuda_scratch(be->product, SKV_CUDA_BF16, columns);
    launch_attention(be, &args, set->n_rows, n_kv_heads);
    if (!is_direct(&out)) {
        skv_cuda_move(be, (skv_cuda_move_args){.y = out, .x = args.out, .factor = 1}, set->n_rows,
                      columns);
    }
}

/* ---- votes ---- */

static void votes(skv_backend *base, const skv_votes_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_backend_step *step = a->step;
    const skv_cuda_item *item = &step->sets[a->set].host_items[a->item];
    const size_t n_kv_heads = kv_heads(step->slots, a->slot);
    const size_t n_rows = item->n_past + a->first + a->n;
    const skv_cuda_votes_args args = {.item = *item,
                                      .q = skv_cuda_rows_of(a->q),
                                      .kv = kv_of(step->slots, a->slot),
                                      .sinks = skv_cuda_floats_of(a->sinks),
                                      .norms = be->vote_norms,
                                      .votes = skv_cuda_rows_of(a->votes).at,
                                      .first = (uint32_t)a->first,
                                      .n = (uint32_t)a->n,
                                      .votes_ld = (uint32_t)a->votes.ld,
                                      .by_query_head = a->by_query_head,
                                      .n_heads = (uint32_t)a->n_heads,
                                      .n_group = (uint32_t)(a->n_heads / n_kv_heads),
                                      .head_dim = (uint32_t)a->head_dim,
                                      .window = (uint32_t)a->window,
                                      .scale = a->scale,
                                      .softcap = a->softcap};
    const skv_cuda_grid tokens = {
        .x = (uint32_t)a->n, .y = args.n_heads, .shared = skv_cuda_votes_shared(args.head_dim, 1)};
    const skv_cuda_grid pages = {.x = (uint32_t)skv_ceil_div(n_rows, SKV_PAGE_ROWS),
                                 .y = (uint32_t)n_kv_heads,
                                 .shared = skv_cuda_votes_shared(args.head_dim, args.n_group)};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_vote_norms, tokens, &args);
    skv_cuda_launch(&be->device, SKV_CUDA_skv_vote_sums, pages, &args);
}

void skv_cuda_fill_attention(skv_backend *table)
{
    table->place = place;
    table->attention = attention;
    table->votes = votes;
}
