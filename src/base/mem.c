/* Memory: see mem.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE, madvise */
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/size.h"

#if defined(__SANITIZE_ADDRESS__)
#define SKV_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SKV_HAS_ASAN 1
#endif
#endif

#ifdef SKV_HAS_ASAN
#include <sanitizer/asan_interface.h>
#define SKV_POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define SKV_UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define SKV_POISON(p, n) ((void)(p), (void)(n))
#define SKV_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { ARENA_GAP = 64, GROUP_MAX = 4096 }; /* bytes between two pieces, poisoned under ASan */

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
    void *block = mmap(NULL, n_bytes ? n_bytes : 1, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return NULL;
    /* Huge pages save page-table walks in the weights and the KV cache. Only a hint. */
    (void)madvise(block, n_bytes, MADV_HUGEPAGE);
    return block;
}

void skv_unmap(void *block, size_t n_bytes)
{
    if (block) (void)munmap(block, n_bytes ? n_bytes : 1);
}

void skv_map_discard(void *block, size_t n_bytes)
{
    if (block && n_bytes) (void)madvise(block, n_bytes, MADV_DONTNEED);
}

/* The number behind `key` in a /proc file, or the file's first number when key is empty. */
static size_t read_number(const char *path, const char *key, size_t unit)
{
    FILE *file = fopen(path, "r");
    if (!file) return SIZE_MAX;
    char line[256];
    size_t value = SIZE_MAX, n_key = strlen(key);
    while (value == SIZE_MAX && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, n_key) != 0) continue;
        char *end;
        unsigned long long number = strtoull(line + n_key, &end, 10);
        if (end != line + n_key && number < SIZE_MAX / unit) value = (size_t)number * unit;
        if (!n_key) break;
    }
    (void)fclose(file);
    return value;
}

/* The path of the process's group: "0::PATH"; "" where there is none. */
static void read_group(const char *membership, char path[GROUP_MAX])
{
    char line[GROUP_MAX + 8];
    path[0] = 0;
    FILE *file = fopen(membership, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(path, GROUP_MAX, "%.*s", GROUP_MAX - 1, line + 3);
    }
    (void)fclose(file);
}

static size_t group_room(const char *root, const char *path)
{
    char file[2 * GROUP_MAX];
    (void)snprintf(file, sizeof file, "%s%s/memory.max", root, path);
    const size_t limit = read_number(file, "", 1);
    (void)snprintf(file, sizeof file, "%s%s/memory.current", root, path);
    const size_t used = read_number(file, "", 1);
    if (limit == SIZE_MAX || used == SIZE_MAX) return SIZE_MAX;
    return limit > used ? limit - used : 0;
}

size_t skv_memory_of_groups(const char *membership, const char *root)
{
    char path[GROUP_MAX];
    read_group(membership, path);
    size_t room = group_room(root, "");
    for (char *end; (end = strrchr(path, '/')) != NULL; *end = 0) {
        room = skv_min_size(room, group_room(root, path));
    }
    return room;
}

size_t skv_memory_available(void)
{
    return skv_min_size(read_number("/proc/meminfo", "MemAvailable:", 1024),
                        skv_memory_of_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
}

size_t skv_memory_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

size_t skv_arena_cost(size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - 2 * ARENA_GAP) return SIZE_MAX;
    return skv_round_up(n_bytes, SKV_ALIGN) + ARENA_GAP;
}

int skv_arena_init(skv_arena *arena, size_t size)
{
    arena->base = skv_alloc_aligned(size, 1);
    arena->size = arena->base ? size : 0;
    arena->used = 0;
    if (!arena->base) return 0;
    SKV_POISON(arena->base, size);
    return 1;
}

void skv_arena_release(skv_arena *arena)
{
    if (arena->base) SKV_UNPOISON(arena->base, arena->size);
    skv_free(arena->base);
    *arena = (skv_arena){0};
}

void *skv_arena_take(skv_arena *arena, size_t count, size_t size)
{
    size_t n_bytes;
    if (!skv_size_mul(count, size, &n_bytes)) return NULL;
    size_t cost = skv_arena_cost(n_bytes);
    if (cost > arena->size - arena->used) return NULL;
    void *piece = arena->base + arena->used;
    arena->used += cost;
    SKV_UNPOISON(piece, n_bytes);
    return piece;
}

void skv_arena_reset(skv_arena *arena)
{
    arena->used = 0;
    SKV_POISON(arena->base, arena->size);
}
