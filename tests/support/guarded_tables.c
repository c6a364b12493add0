/* Tables of embeddings of the guarded back end, and sums over ranks: see guarded_backend.h. */
#include <stdlib.h>
#include <string.h>

#include "guarded_state.h"

static skv_bytes guarded_embedding_bytes(const skv_backend *base, size_t n_rows, size_t K)
{
    (void)base;
    return (skv_bytes){.host = n_rows * K * sizeof(float)};
}

static skv_status guarded_embedding_create(skv_backend *base, const skv_row_source *source,
                                           size_t K, size_t first_id, skv_embedding **out,
                                           skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    (void)err;
    skv_embedding *table =
        guarded_take(sizeof *table + guarded_embedding_bytes(base, source->n_rows, K).host);
    table->of = g;
    table->first_id = first_id;
    table->n_rows = source->n_rows;
    table->K = K;
    source->read(source->ctx, 0, source->n_rows, table->rows);
    g->n_tables++;
    *out = table;
    return SKV_OK;
}

static void guarded_embedding_free(skv_backend *base, skv_embedding *table)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!table) return;
    if (table->of != g) guarded_die("a table of another back end");
    guarded_run(g);
    free(table);
    g->n_tables--;
}

typedef struct embed_args {
    const skv_embedding *table;
    const int32_t *ids; /* [n_rows] */
    skv_rows x;         /* the CPU's */
    size_t n_rows;
    float scale;
} embed_args;

static void replay_embed(guarded *g, void *args)
{
    const embed_args *a = args;
    const skv_embedding *table = a->table;
    for (size_t i = 0; i < a->n_rows; i++) {
        const size_t id = (size_t)a->ids[i], row = id - table->first_id;
        const bool has = id >= table->first_id && row < table->n_rows;
        float *to = guarded_row(g, a->x, i);
        for (size_t d = 0; d < table->K; d++) {
            to[d] = has ? table->rows[row * table->K + d] * a->scale : 0;
        }
    }
}

static void guarded_embed(skv_backend *base, const skv_backend_step *step,
                          const skv_embedding *table, skv_rows x, float scale)
{
    guarded *g LEAVES = guarded_begin(base);
    const size_t T = guarded_set(g, step, SKV_SET_ALL)->n_rows;
    if (table->of != g) guarded_die("a table of another back end");
    if (!step->ids) guarded_die("embeddings of a step that has no ids");
    embed_args a = {.table = table, .n_rows = T, .scale = scale};
    a.x = guarded_floats(g, x, T, table->K);
    a.ids = guarded_keep(g, step->ids, T * sizeof *step->ids);
    LATER(g, embed, a);
}

/* x [n] are floats that stand close together. */
typedef struct sum_args {
    skv_rows x; /* the CPU's */
    size_t n_rows, n;
} sum_args;

static void replay_sum(guarded *g, void *args)
{
    const sum_args *a = args;
    g->cpu->sum(g->cpu, a->x, a->n_rows, a->n);
}

/* The sum is the host's, which waits for x. */
static void guarded_sum(skv_backend *base, skv_rows x, size_t n_rows, size_t n)
{
    guarded *g LEAVES = guarded_begin(base);
    if (x.ld != n) guarded_die("a sum of rows that do not stand close together");
    sum_args a = {.n_rows = n_rows, .n = n};
    a.x = guarded_rows(g, x, n_rows, n);
    LATER(g, sum, a);
    guarded_wait(g);
}

void guarded_add_tables(skv_backend *base)
{
    base->keeps_embeddings = true;
    base->embedding_bytes = guarded_embedding_bytes;
    base->embedding_create = guarded_embedding_create;
    base->embedding_free = guarded_embedding_free;
    base->embed = guarded_embed;
    base->sum = guarded_sum;
}
