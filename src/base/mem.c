/* Memory: see mem.h. */
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"
#include "base/system.h"

void *skv_alloc(size_t count, size_t size)
{
    size_t n_bytes;
    if (!skv_size_mul(count, size, &n_bytes)) return NULL;
    return malloc(n_bytes ? n_bytes : 1);
}

void *skv_alloc_zero(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

void *skv_realloc(void *block, size_t count, size_t size)
{
    size_t n_bytes;
    if (!skv_size_mul(count, size, &n_bytes)) return NULL;
    return realloc(block, n_bytes ? n_bytes : 1);
}

void skv_free(void *block)
{
    free(block);
}

void *skv_alloc_aligned(size_t count, size_t size)
{
    size_t n_bytes;
    if (!skv_size_mul(count, size, &n_bytes) || n_bytes > SIZE_MAX - SKV_ALIGN) return NULL;
    return aligned_alloc(SKV_ALIGN, skv_round_up(n_bytes ? n_bytes : 1, SKV_ALIGN));
}

char *skv_strndup(const char *text, size_t n)
{
    size_t n_bytes;
    if (!skv_size_add(n, 1, &n_bytes)) return NULL;
    char *copy = skv_alloc(n_bytes, 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

void *skv_map_zero(size_t n_bytes)
{
    return skv_pages_map(n_bytes ? n_bytes : 1);
}

void skv_unmap(void *block, size_t n_bytes)
{
    if (block) (void)munmap(block, n_bytes ? n_bytes : 1);
}
