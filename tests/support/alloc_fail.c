/* Failing the k-th allocation: see alloc_fail.h. */
#include "alloc_fail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

/* Test programs may keep state; the library may not. */
static atomic_size_t n_asked;
static atomic_size_t fail_at;

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t n_bytes);
void *__real_aligned_alloc(size_t alignment, size_t n_bytes);
void *__real_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t n_bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes);
void *__wrap_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);

void alloc_fail_at(size_t k)
{
    atomic_store(&n_asked, 0);
    atomic_store(&fail_at, k);
}

size_t alloc_fail_count(void)
{
    return atomic_load(&n_asked);
}

static bool must_fail(void)
{
    size_t i = atomic_fetch_add(&n_asked, 1) + 1;
    if (i != atomic_load(&fail_at)) return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n_bytes)
{
    return must_fail() ? NULL : __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t n_bytes)
{
    return must_fail() ? NULL : __real_realloc(block, n_bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes)
{
    return must_fail() ? NULL : __real_aligned_alloc(alignment, n_bytes);
}

void *__wrap_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset)
{
    if (must_fail()) return MAP_FAILED;
    return __real_mmap(at, n_bytes, access, flags, fd, offset);
}

void *alloc_fail_malloc(size_t n_bytes)
{
    return __wrap_malloc(n_bytes);
}

void alloc_fail_free(void *block)
{
    free(block);
}

size_t alloc_fail_each(bool (*attempt)(void *arg), void *arg, bool tolerant)
{
    for (size_t k = 1;; k++) {
        alloc_fail_at(k);
        bool succeeded = attempt(arg);
        size_t n = alloc_fail_count();
        alloc_fail_at(0);
        bool failed_one = n >= k;
        if (!failed_one) return succeeded ? n : SIZE_MAX;
        if (succeeded && !tolerant) return SIZE_MAX;
    }
}
