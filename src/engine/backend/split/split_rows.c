/* Operations on rows that belong to no layer by their arguments: they run where the rows are. */
#include "backend/split/split_backend.h"

static const skv_rows none = {0};

static void norm(skv_backend *base, const skv_norm_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->x, none);
    skv_norm_args a = *args;
    skv_split_use(be, s, &a.x, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.y, a.n_rows, a.n, SKV_MAP_WRITE);
    skv_split_use_vec(be, s, &a.norm.weight);
    be->of[s]->norm(be->of[s], &a);
}

static void norm_add(skv_backend *base, const skv_norm_add_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->y, args->x);
    skv_norm_add_args a = *args;
    skv_split_use(be, s, &a.x, a.n_rows, a.n, SKV_MAP_BOTH);
    skv_split_use(be, s, &a.y, a.n_rows, a.n, SKV_MAP_BOTH);
    skv_split_use_vec(be, s, &a.norm.weight);
    be->of[s]->norm_add(be->of[s], &a);
}

static void glu(skv_backend *base, const skv_glu_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->x, none);
    skv_glu_args a = *args;
    skv_split_use(be, s, &a.x, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.y, a.n_rows, a.n, SKV_MAP_WRITE);
    be->of[s]->glu(be->of[s], &a);
}

static void embed_gate(skv_backend *base, const skv_embed_gate_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->gate, args->part);
    const size_t n_rows = args->step->n_rows[args->set];
    skv_embed_gate_args a = *args;
    skv_split_use(be, s, &a.token, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.gate, n_rows, a.n, SKV_MAP_BOTH);
    skv_split_use(be, s, &a.part, n_rows, a.n, SKV_MAP_BOTH);
    skv_split_use_vec(be, s, &a.norm.weight);
    a.step = a.step->of[s];
    be->of[s]->embed_gate(be->of[s], &a);
}

static void gated_norm(skv_backend *base, const skv_gated_norm_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->x, args->z);
    skv_gated_norm_args a = *args;
    skv_split_use(be, s, &a.z, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.x, a.n_rows, a.n_groups * a.n, SKV_MAP_BOTH);
    skv_split_use_vec(be, s, &a.norm.weight);
    be->of[s]->gated_norm(be->of[s], &a);
}

static void sum(skv_backend *base, skv_rows x, size_t n_rows, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, x, none);
    skv_split_use(be, s, &x, n_rows, n, SKV_MAP_BOTH);
    be->of[s]->sum(be->of[s], x, n_rows, n);
}

static void scale(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float factor)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, x, none);
    skv_split_use(be, s, &x, n_rows, n, SKV_MAP_BOTH);
    be->of[s]->scale(be->of[s], x, n_rows, n, factor);
}

static void softcap(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float cap)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, x, none);
    skv_split_use(be, s, &x, n_rows, n, SKV_MAP_BOTH);
    be->of[s]->softcap(be->of[s], x, n_rows, n, cap);
}

/* Rows that both have are copied by both, so that neither has to ask the other for the copy. */
static void copy_rows(skv_backend *base, skv_rows to, skv_rows from, size_t n_rows, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned both = from.area->valid & to.area->valid;
    const bool anew = !to.area->lasts && to.at == 0;
    const unsigned sides = anew ? from.area->valid : both;
    const unsigned only = skv_split_bit(skv_split_choose(be, from, none));
    unsigned written = 0;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        skv_rows here = to, there = from;
        if (!((sides ? sides : only) & skv_split_bit(s))) continue;
        skv_split_use(be, s, &there, 0, 0, SKV_MAP_READ);
        if (written) { /* this side gets the other's contents */
            here.area = to.area->of[s];
        } else {
            skv_split_use(be, s, &here, n_rows, n, SKV_MAP_WRITE);
        }
        written |= skv_split_bit(s);
        be->of[s]->copy_rows(be->of[s], here, there, n_rows, n);
    }
    to.area->valid = written;
}

/* Rows of the host are the processor's. */
static size_t row_bytes(const skv_backend *base, skv_weight_type type, size_t K)
{
    const skv_backend *of = ((const skv_split_backend *)base)->of[SKV_SPLIT_SECOND];
    return of->row_bytes(of, type, K);
}

static void save_rows(skv_backend *base, skv_weight_type type, unsigned char *host, skv_rows x,
                      size_t n, size_t K, skv_norm by)
{
    skv_split_backend *be = skv_split_of(base);
    skv_split_use(be, SKV_SPLIT_SECOND, &x, 0, 0, SKV_MAP_READ);
    skv_split_use_vec(be, SKV_SPLIT_SECOND, &by.weight);
    be->of[SKV_SPLIT_SECOND]->save_rows(be->of[SKV_SPLIT_SECOND], type, host, x, n, K, by);
}

static void load_rows(skv_backend *base, skv_weight_type type, skv_rows x,
                      const unsigned char *host, size_t n, size_t K)
{
    skv_split_backend *be = skv_split_of(base);
    skv_split_use(be, SKV_SPLIT_SECOND, &x, n, K, SKV_MAP_WRITE);
    be->of[SKV_SPLIT_SECOND]->load_rows(be->of[SKV_SPLIT_SECOND], type, x, host, n, K);
}

void skv_split_fill_rows(skv_backend *table)
{
    table->norm = norm;
    table->norm_add = norm_add;
    table->glu = glu;
    table->embed_gate = embed_gate;
    table->gated_norm = gated_norm;
    table->sum = sum;
    table->scale = scale;
    table->softcap = softcap;
    table->copy_rows = copy_rows;
    table->row_bytes = row_bytes;
    table->save_rows = save_rows;
    table->load_rows = load_rows;
}
