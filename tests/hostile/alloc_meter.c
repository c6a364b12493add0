/* Counting the bytes that are held: see alloc_meter.h. */
#include "alloc_meter.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

/* Test programs may keep state; the library may not. */
static atomic_size_t used, peak, limit;
static void (*tell_full)(void);

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t n_bytes);
void *__real_aligned_alloc(size_t alignment, size_t n_bytes);
void __real_free(void *block);
void *__real_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void *block, size_t n_bytes);

void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t n_bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes);
void __wrap_free(void *block);
void *__wrap_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void *block, size_t n_bytes);

static void add(size_t n_bytes)
{
    size_t now = atomic_fetch_add(&used, n_bytes) + n_bytes, top = atomic_load(&peak);
    while (now > top && !atomic_compare_exchange_weak(&peak, &top, now)) continue;
    size_t max = atomic_load(&limit);
    if (max > 0 && now > max && tell_full) tell_full();
}

static void take_away(size_t n_bytes)
{
    (void)atomic_fetch_sub(&used, n_bytes);
}

static void *added(void *block)
{
    if (block) add(malloc_usable_size(block));
    return block;
}

void alloc_meter_reset(void)
{
    atomic_store(&peak, atomic_load(&used));
}

size_t alloc_meter_used(void)
{
    return atomic_load(&used);
}

size_t alloc_meter_peak(void)
{
    return atomic_load(&peak);
}

void alloc_meter_limit(size_t max, void (*full)(void))
{
    tell_full = full;
    atomic_store(&limit, max);
}

void *__wrap_malloc(size_t n_bytes)
{
    return added(__real_malloc(n_bytes));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return added(__real_calloc(count, size));
}

/* Both blocks are there for a moment, but where the old one grows in place: it counts as one. */
void *__wrap_realloc(void *block, size_t n_bytes)
{
    size_t before = block ? malloc_usable_size(block) : 0;
    void *grown = __real_realloc(block, n_bytes);
    if (!grown) return NULL;
    take_away(before);
    return added(grown);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes)
{
    return added(__real_aligned_alloc(alignment, n_bytes));
}

void __wrap_free(void *block)
{
    if (block) take_away(malloc_usable_size(block));
    __real_free(block);
}

void *__wrap_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset)
{
    void *block = __real_mmap(at, n_bytes, access, flags, fd, offset);
    if (block != MAP_FAILED) add(n_bytes);
    return block;
}

int __wrap_munmap(void *block, size_t n_bytes)
{
    take_away(n_bytes);
    return __real_munmap(block, n_bytes);
}

void *alloc_meter_malloc(size_t n_bytes)
{
    return __wrap_malloc(n_bytes);
}

void alloc_meter_free(void *block)
{
    __wrap_free(block);
}
