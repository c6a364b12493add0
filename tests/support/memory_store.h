/*
 * A store of blocks in memory, which one thread at a time uses and which loses nothing: what one
 * scheduler sends another reads. It allocates by cmocka, so a leak fails the test.
 */
#ifndef SKV_TESTS_MEMORY_STORE_H
#define SKV_TESTS_MEMORY_STORE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "skv/store.h"

enum { MEMORY_STORE_VALUES = 1024 };

typedef struct memory_store {
    struct {
        uint8_t name[SKV_CACHE_NAME_BYTES];
        unsigned char *data; /* owned, [n] */
        size_t n;
    } at[MEMORY_STORE_VALUES];
    size_t n;
} memory_store;

static inline skv_status memory_store_open(void *user, void **link, skv_error *err)
{
    (void)err;
    *link = user;
    return SKV_OK;
}

static inline void memory_store_close(void *link)
{
    (void)link;
}

static inline size_t memory_store_find(const memory_store *m, const uint8_t *name)
{
    size_t i = 0;
    while (i < m->n && memcmp(m->at[i].name, name, SKV_CACHE_NAME_BYTES) != 0) i++;
    return i;
}

static inline skv_status memory_store_get(void *link, const uint8_t *name, size_t n_max,
                                          const unsigned char **data, size_t *n_bytes,
                                          skv_error *err)
{
    const memory_store *m = link;
    const size_t i = memory_store_find(m, name);
    (void)err;
    *data = i < m->n ? m->at[i].data : NULL;
    *n_bytes = i < m->n ? m->at[i].n : 0;
    return *n_bytes <= n_max ? SKV_OK : SKV_IO;
}

static inline skv_status memory_store_put(void *link, const uint8_t *name, const skv_block_value *v,
                                          skv_error *err)
{
    memory_store *m = link;
    const size_t i = memory_store_find(m, name);
    (void)err;
    if (i == MEMORY_STORE_VALUES) return SKV_FULL;
    if (i == m->n) m->at[m->n++].data = NULL;
    memcpy(m->at[i].name, name, SKV_CACHE_NAME_BYTES);
    test_free(m->at[i].data);
    m->at[i].n = v->n_head + v->n_body;
    m->at[i].data = test_malloc(m->at[i].n);
    memcpy(m->at[i].data, v->head, v->n_head);
    memcpy(m->at[i].data + v->n_head, v->body, v->n_body);
    return SKV_OK;
}

static inline void memory_store_tend(void *link, skv_block_store_state *state)
{
    (void)link;
    *state = (skv_block_store_state){.n_up = 1, .wait_ms = 1};
}

static inline skv_block_store memory_store_of(memory_store *m)
{
    return (skv_block_store){m,
                             5,
                             memory_store_open,
                             memory_store_close,
                             memory_store_get,
                             memory_store_put,
                             memory_store_tend,
                             NULL};
}

static inline void memory_store_clear(memory_store *m)
{
    for (size_t i = 0; i < m->n; i++) test_free(m->at[i].data);
    m->n = 0;
}

#endif
