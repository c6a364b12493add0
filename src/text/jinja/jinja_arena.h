/*
 * Memory of one template or one rendering: pieces are taken one after another and all are given
 * back at once. Values of a rendering are never changed once they are visible to the template
 * (the sandbox forbids it), so nothing needs to be freed on its own.
 */
#ifndef SKV_TEXT_JINJA_ARENA_H
#define SKV_TEXT_JINJA_ARENA_H

#include <stddef.h>

typedef struct skv_jblock skv_jblock;

typedef struct skv_jarena {
    skv_jblock *head; /* owned; the newest block first */
    size_t used;      /* bytes taken, with the rounding */
    size_t max;       /* bytes it may ever hand out */
} skv_jarena;

void skv_jarena_init(skv_jarena *arena, size_t max);
void skv_jarena_release(skv_jarena *arena);
/** `count * size` zeroed bytes, 16-byte aligned; NULL beyond the maximum or without memory. */
void *skv_jarena_take(skv_jarena *arena, size_t count, size_t size);

#endif
