/* Keys and values go where their slot is read, and attention runs where the queries are. */
#include <assert.h>

#include "backend/split/split_backend.h"

static const skv_rows none = {0};

/* The queries alone, or keys and values beside them. */
static void place_on(skv_split_backend *be, unsigned side, const skv_place_args *args, bool queries)
{
    const size_t n_q = args->n_heads * args->head_dim;
    skv_place_args a = *args;
    if (!queries) a.q = none;
    skv_split_use(be, side, &a.k, 0, 0, SKV_MAP_READ);
    skv_split_use(be, side, &a.v, 0, 0, SKV_MAP_READ);
    skv_split_use(be, side, &a.q, args->step->n_rows[args->set], n_q, SKV_MAP_BOTH);
    skv_split_use_vec(be, side, &a.q_norm.weight);
    skv_split_use_vec(be, side, &a.k_norm.weight);
    a.step = args->step->of[side];
    be->of[side]->place(be->of[side], &a);
}

/* A slot that layers of both read is written in both. k is undefined afterwards, so both get it
 * before; q stays where its layer is, which comes last. */
static void place(skv_backend *base, const skv_place_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned own = args->q.area ? skv_split_choose(be, args->q, none) : be->current;
    unsigned sides = args->q.area ? skv_split_bit(own) : 0;
    if (args->k.area) sides |= args->step->slots->slot_sides[args->slot];
    for (unsigned s = 0; args->k.area && s < SKV_SPLIT_SIDES; s++) {
        if (!(sides & skv_split_bit(s))) continue;
        skv_split_bring(be, args->k.area, s);
        skv_split_bring(be, args->v.area, s);
    }
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (s == own || !(sides & skv_split_bit(s))) continue;
        place_on(be, s, args, false);
    }
    if (sides & skv_split_bit(own)) place_on(be, own, args, args->q.area);
}

static void attention(skv_backend *base, const skv_attention_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->q, none);
    skv_attention_args a = *args;
    assert(a.step->slots->slot_sides[a.slot] & skv_split_bit(s));
    skv_split_use(be, s, &a.q, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.out, a.step->n_rows[a.set], a.n_heads * a.head_dim, SKV_MAP_WRITE);
    skv_split_use_vec(be, s, &a.sinks);
    a.step = a.step->of[s];
    be->of[s]->attention(be->of[s], &a);
}

static void votes(skv_backend *base, const skv_votes_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned s = skv_split_choose(be, args->q, none);
    const size_t *track0 = args->step->slots->track0;
    skv_votes_args a = *args;
    const size_t n = a.by_query_head ? a.n_heads : track0[a.slot + 1] - track0[a.slot];
    skv_split_use(be, s, &a.q, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.votes, n, a.votes.ld, SKV_MAP_BOTH);
    skv_split_use_vec(be, s, &a.sinks);
    a.step = a.step->of[s];
    be->of[s]->votes(be->of[s], &a);
}

void skv_split_fill_attention(skv_backend *table)
{
    table->place = place;
    table->attention = attention;
    table->votes = votes;
}
