/* Sums over ranks, and each rank's part of a model: see ranks_sum.h. */
#include "model/ranks_sum.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { PANEL = 16, MESSAGE_MAX = 1 << 26 };

/* ---- counting ---- */

static skv_status gather(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    const skv_ranks *ranks = ctx;
    const skv_team *team = ranks->team;
    *ranks->bytes += team->size * (team->size - 1) * n;
    return team->gather(team->ctx, mine, all, n, err);
}

static skv_status exchange(void *ctx, const void *to, void *from, size_t n, skv_error *err)
{
    const skv_ranks *ranks = ctx;
    const skv_team *team = ranks->team;
    *ranks->bytes += team->size * (team->size - 1) * n;
    return team->exchange(team->ctx, to, from, n, err);
}

static skv_status share(void *ctx, void *data, size_t n, skv_error *err)
{
    const skv_ranks *ranks = ctx;
    const skv_team *team = ranks->team;
    *ranks->bytes += (team->size - 1) * n;
    return team->share(team->ctx, data, n, err);
}

static skv_status collect(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    const skv_ranks *ranks = ctx;
    const skv_team *team = ranks->team;
    *ranks->bytes += (team->size - 1) * n;
    return team->collect(team->ctx, mine, all, n, err);
}

/* ---- life ---- */

static size_t scratch_floats(const skv_team *team, size_t vocab)
{
    const skv_ranks_ids ids = skv_ranks_vocab(vocab, 0, team->size);
    return skv_max_size(skv_team_scratch(team), team->size * ids.part);
}

size_t skv_ranks_bytes(const skv_team *team, size_t vocab)
{
    if (skv_team_size(team) == 1) return 0;
    return scratch_floats(team, vocab) * sizeof(float);
}

skv_status skv_ranks_create(const skv_team *team, skv_ranks **out, skv_error *err)
{
    *out = NULL;
    SKV_TRY(skv_team_check(team, err));
    if (skv_team_size(team) == 1) return SKV_OK;
    SKV_REQUIRE(team->collect, err, SKV_ARGUMENT, "ranks: the team cannot collect");
    skv_ranks *ranks = skv_alloc_zero(1, sizeof *ranks);
    SKV_REQUIRE(ranks, err, SKV_MEMORY, "ranks: no memory");
    ranks->team = team;
    ranks->counted = (skv_team){.ctx = ranks,
                                .rank = team->rank,
                                .size = team->size,
                                .gather = gather,
                                .exchange = exchange,
                                .share = share,
                                .collect = collect};
    ranks->traffic.ranks = team->size;
    ranks->bytes = &ranks->traffic.told_bytes;
    skv_buf_init(&ranks->out, MESSAGE_MAX);
    *out = ranks;
    return SKV_OK;
}

skv_status skv_ranks_reserve(skv_ranks *ranks, size_t vocab, skv_error *err)
{
    ranks->scratch_floats = scratch_floats(ranks->team, vocab);
    ranks->scratch = skv_map_zero(ranks->scratch_floats * sizeof *ranks->scratch);
    SKV_REQUIRE(ranks->scratch, err, SKV_MEMORY, "ranks: no memory for sums");
    return SKV_OK;
}

void skv_ranks_free(skv_ranks *ranks)
{
    if (!ranks) return;
    if (ranks->scratch) skv_unmap(ranks->scratch, ranks->scratch_floats * sizeof *ranks->scratch);
    skv_buf_release(&ranks->out);
    skv_free(ranks);
}

/* ---- parts ---- */

skv_ranks_ids skv_ranks_vocab(size_t vocab, size_t rank, size_t n)
{
    size_t part = skv_round_up(skv_ceil_div(vocab, n), PANEL);
    if ((n - 1) * part >= vocab) part = skv_ceil_div(vocab, n);
    const size_t first = skv_min_size(rank * part, vocab);
    return (skv_ranks_ids){first, skv_min_size(part, vocab - first), part};
}

static skv_status divide(size_t *number, size_t n, size_t i, const char *what, skv_error *err)
{
    SKV_REQUIRE(*number % n == 0, err, SKV_UNSUPPORTED,
                "layer %zu has %zu %s, which %zu ranks cannot divide", i, *number, what, n);
    *number /= n;
    return SKV_OK;
}

static skv_status divide_layer(skv_layer_shape *layer, size_t n, size_t i, skv_error *err)
{
    SKV_TRY(divide(&layer->n_kv_heads, n, i, "KV heads", err));
    SKV_TRY(divide(&layer->n_heads, n, i, "query heads", err));
    SKV_TRY(divide(&layer->ffn, n, i, "feed-forward columns", err));
    return divide(&layer->ffn_beside, n, i, "feed-forward columns beside its experts", err);
}

skv_status skv_ranks_config(const skv_config *whole, size_t n, skv_config **out, skv_error *err)
{
    SKV_REQUIRE(!whole->qk_norm || !whole->qk_norm_joined, err, SKV_UNSUPPORTED,
                "%s: its norm of queries and keys is over all heads together, which %zu ranks "
                "cannot divide",
                whole->architecture, n);
    SKV_REQUIRE(skv_ranks_vocab(whole->vocab, n - 1, n).n > 0, err, SKV_UNSUPPORTED,
                "%zu ranks cannot divide a vocabulary of %zu", n, whole->vocab);
    skv_config *part = skv_alloc(1, sizeof *part);
    skv_layer_shape *layers = skv_alloc(whole->n_layers, sizeof *layers);
    if (!part || !layers) {
        skv_free(part);
        skv_free(layers);
        return skv_fail(err, SKV_MEMORY, "ranks: no memory for %zu layers", whole->n_layers);
    }
    *part = *whole;
    part->layers = layers;
    memcpy(layers, whole->layers, whole->n_layers * sizeof *layers);
    skv_status status = SKV_OK;
    for (size_t i = 0; i < whole->n_layers && status == SKV_OK; i++) {
        status = divide_layer(&layers[i], n, i, err);
    }
    if (status == SKV_OK) {
        *out = part;
    } else {
        skv_ranks_config_free(part);
    }
    return status;
}

void skv_ranks_config_free(skv_config *config)
{
    if (config) skv_free(config->layers);
    skv_free(config);
}

/* ---- operations ---- */

void skv_ranks_fail(skv_ranks *ranks, skv_status status, const skv_error *error)
{
    if (ranks->status != SKV_OK || status == SKV_OK) return;
    ranks->status = status;
    ranks->error = *error;
}

skv_status skv_ranks_check(const skv_ranks *ranks, skv_error *err)
{
    if (!ranks || ranks->status == SKV_OK) return SKV_OK;
    return skv_fail(err, ranks->status, "%s", ranks->error.text);
}

void skv_ranks_sum(skv_ranks *ranks, float *x, size_t n)
{
    skv_error err = {0};
    if (ranks->status != SKV_OK || n == 0) return;
    ranks->bytes = &ranks->traffic.sum_bytes;
    ranks->traffic.n_sums++;
    skv_ranks_fail(ranks, skv_team_sum(&ranks->counted, x, n, ranks->scratch, &err), &err);
}

bool skv_ranks_meet(skv_ranks *ranks, const void *mine, void *all, size_t n, size_t n_summed)
{
    const skv_team *team = ranks->team;
    skv_error err = {0};
    if (ranks->status != SKV_OK) return false;
    ranks->traffic.sum_bytes += team->size * (team->size - 1) * n_summed * sizeof(float);
    ranks->traffic.n_sums += n_summed > 0;
    skv_ranks_fail(ranks, team->gather(team->ctx, mine, all, n, &err), &err);
    return ranks->status == SKV_OK;
}

void skv_ranks_share(skv_ranks *ranks, void *data, size_t n)
{
    skv_error err = {0};
    if (ranks->status != SKV_OK || n == 0) return;
    ranks->bytes = &ranks->traffic.told_bytes;
    skv_ranks_fail(ranks, skv_team_share(&ranks->counted, data, n, &err), &err);
}

/* Rows of the other ranks' parts [size][n, part] go to their columns. */
static void place_columns(const skv_ranks *ranks, float *rows, size_t ld, size_t n, size_t vocab)
{
    const size_t own = skv_ranks_vocab(vocab, 0, ranks->team->size).n;
    for (size_t rank = 1; rank < ranks->team->size; rank++) {
        const skv_ranks_ids ids = skv_ranks_vocab(vocab, rank, ranks->team->size);
        const float *part = ranks->scratch + rank * n * ids.part;
        for (size_t i = 0; i < n; i++) {
            memcpy(rows + i * ld + ids.first - own, part + i * ids.part, ids.n * sizeof *part);
        }
    }
}

void skv_ranks_collect(skv_ranks *ranks, float *rows, size_t ld, size_t n_rows, size_t vocab)
{
    const skv_team *team = &ranks->counted;
    const size_t part = skv_ranks_vocab(vocab, 0, team->size).part;
    const size_t most = ranks->scratch_floats / skv_max_size(team->size * part, 1);
    assert(team->rank == 0 || ld == part);
    ranks->bytes = &ranks->traffic.head_bytes;
    for (size_t row = 0, n; row < n_rows && ranks->status == SKV_OK; row += n) {
        n = skv_min_size(most, n_rows - row);
        skv_error err = {0};
        const float *mine = team->rank == 0 ? NULL : rows + row * ld;
        const skv_status status =
            team->collect(team->ctx, mine, ranks->scratch, n * part * sizeof *rows, &err);
        skv_ranks_fail(ranks, status, &err);
        if (status == SKV_OK && team->rank == 0) {
            place_columns(ranks, rows + row * ld, ld, n, vocab);
        }
    }
}
