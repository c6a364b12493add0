/* Walks through the trie: see mask_maker.h. */
#include <assert.h>

#include "base/mem.h"
#include "base/size.h"
#include "grammar/mask_maker.h"

enum { SPEND_EVERY = 1024 }; /* units of work between two looks at the budget */

void skv_node_list_release(skv_node_list *list, skv_account *account)
{
    skv_account_give(account, list->capacity * sizeof *list->nodes);
    skv_free(list->nodes);
    *list = (skv_node_list){0};
}

static bool add_node(skv_node_list *list, skv_parse_space *space, uint32_t node)
{
    if (list->n == list->capacity) {
        size_t more = skv_max_size(256, list->capacity), n_bytes = more * sizeof *list->nodes;
        if (!skv_account_take(space->account, n_bytes)) {
            space->limit = SKV_LIMIT_ACCOUNT;
            return false;
        }
        uint32_t *nodes = skv_realloc(list->nodes, list->capacity + more, sizeof *nodes);
        if (!nodes) {
            skv_account_give(space->account, n_bytes);
            space->limit = SKV_LIMIT_MEMORY;
            return false;
        }
        list->nodes = nodes;
        list->capacity += more;
    }
    list->nodes[list->n++] = node;
    return true;
}

void skv_mask_walk_begin(skv_mask_walk *w, uint32_t above, uint32_t place)
{
    const skv_token_table *t = w->table;
    bool root = above == SKV_TRIE_ROOT;
    w->at = root ? 0 : above + 1;
    w->end = root ? (uint32_t)t->n_nodes : t->nodes[above].skip;
    w->first = root ? 0 : t->nodes[above].depth;
    w->places[w->first] = place;
    w->ends[w->first] = 0;
}

/* ends: nodes above this one where the rule has ended. Returns them with this one. */
static uint8_t pay(skv_mask_toll *toll, const skv_place *p, uint8_t ends)
{
    if (p->ends) ends++;
    if (p->load > toll->load) toll->load = p->load;
    if (p->depth > toll->depth) toll->depth = p->depth;
    if (ends > toll->ends) toll->ends = ends;
    return ends;
}

/* Adds the tokens of a node. */
static inline void add_tokens(const skv_mask_walk *w, const skv_token_node *node)
{
    const uint32_t *ids = w->table->ids + node->first_id;
    for (uint32_t k = 0; k < node->n_ids; k++) {
        w->bits[ids[k] / 32] |= UINT32_C(1) << ids[k] % 32;
    }
}

/* Records the wanted facts, besides tokens, of node i with the position `next` after it; false if
 * out of memory. */
static bool note_node(skv_mask_walk *w, uint32_t i, uint32_t next)
{
    const skv_token_node *node = &w->table->nodes[i];
    const skv_place *p = &w->space->places[next];
    bool is_exit = w->exits && p->ends && node->skip > i + 1;
    if (is_exit && !add_node(w->exits, w->space, i)) return false;
    w->ends[node->depth] = pay(w->toll, p, w->ends[node->depth - 1]);
    return true;
}

/*
 * Visits nodes from i on, until the end, a failed step, or about n_visits nodes; returns the next
 * node. This is the inner loop of all masks: most steps are cached, and then a node takes a few
 * loads.
 */
static uint32_t walk_some(skv_mask_walk *w, uint32_t i, uint32_t n_visits)
{
    skv_parse_space *space = w->space;
    const skv_token_node *nodes = w->table->nodes;
    const bool notes = w->toll;
    uint32_t end = w->end, n = 0;
    for (; i < end && n < n_visits; n++) {
        const skv_token_node *node = &nodes[i];
        uint32_t from = w->places[node->depth - 1];
        uint32_t next = skv_parse_next(space, from, node->byte);
        if (next == SKV_PLACE_DEAD) {
            if (space->limit >= SKV_LIMIT_EDGES) break;
            i = node->skip;
        } else {
            i++;
        }
        if (notes && space->places[from].cut != SKV_LIMIT_NONE) {
            w->toll->cut = true;
            i = end;
        } else if (next != SKV_PLACE_DEAD) {
            w->places[node->depth] = next;
            add_tokens(w, node);
            if (notes && !note_node(w, i - 1, next)) {
                i--;
                break;
            }
        }
        if (space->uncounted >= SPEND_EVERY) break;
    }
    space->uncounted += n;
    return i;
}

skv_walk_state skv_mask_walk_on(skv_mask_walk *w, skv_budget *budget)
{
    skv_parse_space *space = w->space;
    while (w->at < w->end) {
        if (space->uncounted >= SPEND_EVERY && !skv_parse_spend(space, budget)) {
            return SKV_WALK_PAUSED;
        }
        w->at = walk_some(w, w->at, SPEND_EVERY);
        if (space->limit >= SKV_LIMIT_EDGES) return SKV_WALK_STUCK;
    }
    return SKV_WALK_DONE;
}

size_t skv_mask_walk_list(skv_mask_walk *w, uint32_t **kept)
{
    if (w->at >= w->end) return 0;
    size_t n = 0;
    for (uint32_t depth = w->first; depth < w->table->nodes[w->at].depth; depth++) {
        if (kept) kept[n] = &w->places[depth];
        n++;
    }
    assert(n >= 1);
    return n;
}
