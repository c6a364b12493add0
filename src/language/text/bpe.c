/* The pair table and the merging of one word; see bpe.h. */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"

enum { SHORT_MAX = 40 }; /* symbols; below this, scanning beats the heap */

/* A symbol of a long word, in a doubly linked list over positions. */
struct skv_bpe_node {
    uint32_t previous, next; /* SKV_BPE_NONE at the ends */
    uint32_t rank, id;       /* of the pair with the next symbol; id SKV_BPE_NONE: none */
};

struct skv_bpe_entry {
    uint64_t key; /* rank << 32 | position */
};

bool skv_bpe_init(skv_bpe *bpe, size_t n_pairs)
{
    size_t n_slots = 16;
    while (n_slots < n_pairs + n_pairs / 2) n_slots *= 2;
    *bpe = (skv_bpe){.pairs = skv_alloc(n_slots, sizeof *bpe->pairs), .mask = n_slots - 1};
    if (!bpe->pairs) return false;
    memset(bpe->pairs, 0xff, n_slots * sizeof *bpe->pairs);
    bpe->limit = n_pairs;
    return true;
}

void skv_bpe_release(skv_bpe *bpe)
{
    skv_free(bpe->pairs);
    *bpe = (skv_bpe){0};
}

static size_t slot_of(const skv_bpe *bpe, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash ^ hash >> 32) & bpe->mask;
    while (bpe->pairs[i].id != SKV_BPE_NONE && bpe->pairs[i].key != key) i = (i + 1) & bpe->mask;
    return i;
}

static uint64_t key_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

void skv_bpe_put(skv_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    uint64_t key = key_of(left, right);
    skv_bpe_pair *pair = &bpe->pairs[slot_of(bpe, key)];
    if (pair->id == SKV_BPE_NONE) {
        if (bpe->n_pairs == bpe->limit) return;
        bpe->n_pairs++;
    }
    *pair = (skv_bpe_pair){.key = key, .rank = rank, .id = id};
}

/* NULL when the two do not join. */
static const skv_bpe_pair *find_pair(const skv_bpe *bpe, uint32_t left, uint32_t right)
{
    const skv_bpe_pair *pair = &bpe->pairs[slot_of(bpe, key_of(left, right))];
    return pair->id == SKV_BPE_NONE ? NULL : pair;
}

bool skv_bpe_reserve(skv_bpe_work *work, size_t n)
{
    if (n <= work->capacity) return true;
    size_t capacity = n < 256 ? 256 : n + n / 2;
    uint32_t *symbols = skv_realloc(work->symbols, capacity, sizeof *symbols);
    if (!symbols) return false;
    work->symbols = symbols;
    work->capacity = capacity;
    return true;
}

void skv_bpe_work_release(skv_bpe_work *work)
{
    skv_free(work->symbols);
    skv_free(work->nodes);
    skv_free(work->heap);
    *work = (skv_bpe_work){0};
}

/* Short words: ranks[i] belongs to the pair (i, i + 1), SKV_BPE_NONE where there is none. */

static void look_up(const skv_bpe *bpe, const uint32_t *symbols, size_t i, uint32_t *ranks,
                    uint32_t *ids)
{
    const skv_bpe_pair *pair = find_pair(bpe, symbols[i], symbols[i + 1]);
    ranks[i] = pair ? pair->rank : SKV_BPE_NONE;
    ids[i] = pair ? pair->id : SKV_BPE_NONE;
}

static size_t merge_short(const skv_bpe *bpe, uint32_t *symbols, size_t n)
{
    uint32_t ranks[SHORT_MAX], ids[SHORT_MAX];
    for (size_t i = 0; i + 1 < n; i++) look_up(bpe, symbols, i, ranks, ids);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == SKV_BPE_NONE) break;
        symbols[best] = ids[best];
        for (size_t i = best + 1; i + 1 < n; i++) symbols[i] = symbols[i + 1];
        for (size_t i = best + 1; i + 2 < n; i++) {
            ranks[i] = ranks[i + 1];
            ids[i] = ids[i + 1];
        }
        n--;
        if (best + 1 < n) look_up(bpe, symbols, best, ranks, ids);
        if (best > 0) look_up(bpe, symbols, best - 1, ranks, ids);
    }
    return n;
}

/* Long words: a binary heap of (rank, position); entries that no longer hold are skipped. */

static void heap_push(struct skv_bpe_entry *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2].key > key) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i].key = key;
}

static uint64_t heap_pop(struct skv_bpe_entry *heap, size_t *n)
{
    uint64_t top = heap[0].key, last = heap[--*n].key;
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i].key = last;
    return top;
}

static bool reserve_long(skv_bpe_work *work, size_t n)
{
    if (n <= work->long_capacity) return true;
    skv_free(work->nodes);
    skv_free(work->heap);
    work->nodes = skv_alloc(n, sizeof *work->nodes);
    work->heap = skv_alloc(n * 3, sizeof *work->heap); /* n - 1 pairs, two more for each merge */
    work->long_capacity = work->nodes && work->heap ? n : 0;
    return work->long_capacity != 0;
}

static void look_up_node(const skv_bpe *bpe, skv_bpe_work *work, uint32_t i, size_t *n_heap)
{
    struct skv_bpe_node *node = &work->nodes[i];
    node->id = SKV_BPE_NONE;
    if (node->next == SKV_BPE_NONE) return;
    const skv_bpe_pair *pair = find_pair(bpe, work->symbols[i], work->symbols[node->next]);
    if (!pair) return;
    node->rank = pair->rank;
    node->id = pair->id;
    heap_push(work->heap, n_heap, (uint64_t)pair->rank << 32 | i);
}

static void join(const skv_bpe *bpe, skv_bpe_work *work, uint32_t i, size_t *n_heap)
{
    struct skv_bpe_node *node = &work->nodes[i];
    uint32_t gone = node->next;
    work->symbols[i] = node->id;
    node->next = work->nodes[gone].next;
    work->nodes[gone].id = SKV_BPE_NONE;
    if (node->next != SKV_BPE_NONE) work->nodes[node->next].previous = i;
    look_up_node(bpe, work, i, n_heap);
    if (node->previous != SKV_BPE_NONE) look_up_node(bpe, work, node->previous, n_heap);
}

static size_t merge_long(const skv_bpe *bpe, skv_bpe_work *work, size_t n)
{
    size_t n_heap = 0, n_left = 0;
    for (size_t i = 0; i < n; i++) {
        work->nodes[i].previous = i == 0 ? SKV_BPE_NONE : (uint32_t)(i - 1);
        work->nodes[i].next = i + 1 == n ? SKV_BPE_NONE : (uint32_t)(i + 1);
    }
    for (size_t i = 0; i < n; i++) look_up_node(bpe, work, (uint32_t)i, &n_heap);
    while (n_heap > 0) {
        uint64_t key = heap_pop(work->heap, &n_heap);
        uint32_t i = (uint32_t)key;
        if (work->nodes[i].id == SKV_BPE_NONE || work->nodes[i].rank != key >> 32) continue;
        join(bpe, work, i, &n_heap);
    }
    for (uint32_t i = 0; i != SKV_BPE_NONE; i = work->nodes[i].next) {
        work->symbols[n_left++] = work->symbols[i];
    }
    return n_left;
}

bool skv_bpe_merge(const skv_bpe *bpe, skv_bpe_work *work, size_t *n)
{
    if (*n < 2 || bpe->n_pairs == 0) return true;
    if (*n <= SHORT_MAX) {
        *n = merge_short(bpe, work->symbols, *n);
        return true;
    }
    if (*n >= SKV_BPE_NONE || !reserve_long(work, *n)) return false;
    *n = merge_long(bpe, work, *n);
    return true;
}
