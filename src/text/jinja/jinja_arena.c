/* Blocks that only grow: see jinja_arena.h. */
#include "text/jinja/jinja_arena.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { BLOCK_BYTES = 32 * 1024, PIECE_ALIGN = 16 };

struct skv_jblock {
    skv_jblock *next; /* owned */
    size_t used;      /* bytes of `data` */
    size_t size;      /* bytes of `data` */
    size_t reserved;  /* keeps `data` 16-byte aligned */
    unsigned char data[];
};

void skv_jarena_init(skv_jarena *arena, size_t max)
{
    *arena = (skv_jarena){.max = max};
}

void skv_jarena_release(skv_jarena *arena)
{
    while (arena->head) {
        skv_jblock *next = arena->head->next;
        skv_free(arena->head);
        arena->head = next;
    }
    arena->used = 0;
}

static skv_jblock *new_block(size_t n)
{
    size_t bytes;
    if (!skv_size_add(n, sizeof(skv_jblock), &bytes)) return NULL;
    skv_jblock *block = skv_alloc(bytes, 1);
    if (block) *block = (skv_jblock){.size = n};
    return block;
}

/* A large piece gets a block of its own behind the head, so that the head's rest stays in use. */
static skv_jblock *block_for(skv_jarena *arena, size_t n)
{
    skv_jblock *head = arena->head;
    if (head && head->size - head->used >= n) return head;
    skv_jblock *block = new_block(skv_max_size(n, BLOCK_BYTES));
    if (!block) return NULL;
    if (head && n > BLOCK_BYTES) {
        block->next = head->next;
        head->next = block;
    } else {
        block->next = head;
        arena->head = block;
    }
    return block;
}

void *skv_jarena_take(skv_jarena *arena, size_t count, size_t size)
{
    size_t n, total;
    if (!skv_size_mul(count, size, &n) || n > arena->max) return NULL;
    n = skv_round_up(skv_max_size(n, 1), PIECE_ALIGN);
    if (!skv_size_add(arena->used, n, &total) || total > arena->max) return NULL;
    skv_jblock *block = block_for(arena, n);
    if (!block) return NULL;
    void *piece = block->data + block->used;
    block->used += n;
    arena->used = total;
    memset(piece, 0, n);
    return piece;
}
