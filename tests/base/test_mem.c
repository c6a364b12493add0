/* Memory: checked sizes, alignment, maps, running out. */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "skv/tools.h"
#include "temp_folder.h"

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    assert_null(skv_alloc(SIZE_MAX, 2));
    assert_null(skv_alloc(SIZE_MAX / 2 + 1, 2)); /* the product is 0 in size_t */
    assert_null(skv_alloc_zero(SIZE_MAX / 2 + 1, 2));
    assert_null(skv_alloc_aligned(SIZE_MAX / 2 + 1, 2));
    assert_null(skv_alloc_aligned(SIZE_MAX, 1));
    assert_null(skv_alloc_aligned(SIZE_MAX - SKV_ALIGN + 1, 1));
    assert_null(skv_strndup("", SIZE_MAX));
    char *block = skv_alloc(8, 1);
    assert_non_null(block);
    memcpy(block, "1234567", 8);
    assert_null(skv_realloc(block, SIZE_MAX / 4 + 1, 4));
    assert_string_equal(block, "1234567"); /* still there, still ours */
    skv_free(block);
}

static void nothing_is_something(void **state)
{
    (void)state;
    void *blocks[] = {skv_alloc(0, 8), skv_alloc_zero(0, 8), skv_alloc_aligned(8, 0),
                      skv_realloc(NULL, 0, 1)};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        assert_non_null(blocks[i]);
        skv_free(blocks[i]);
    }
    skv_free(NULL);
    skv_unmap(NULL, 4096);
}

static void aligned_blocks_are_aligned(void **state)
{
    (void)state;
    for (size_t n = 1; n < 300; n++) {
        unsigned char *block = skv_alloc_aligned(n, 1);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % SKV_ALIGN, 0);
        memset(block, 0xa5, n);
        skv_free(block);
    }
}

static void copies_are_terminated(void **state)
{
    (void)state;
    char *copy = skv_strndup("abcdef", 3);
    assert_string_equal(copy, "abc");
    skv_free(copy);
    copy = skv_strndup(NULL, 0);
    assert_string_equal(copy, "");
    skv_free(copy);
}

static void maps_are_zero(void **state)
{
    (void)state;
    const size_t n = 3u << 20;
    unsigned char *block = skv_map_zero(n);
    assert_non_null(block);
    for (size_t i = 0; i < n; i += 4096) assert_int_equal(block[i], 0);
    memset(block, 1, n);
    skv_unmap(block, n);
    assert_null(skv_map_zero(SIZE_MAX / 2));
}

static void memory_is_told(void **state)
{
    (void)state;
    assert_true(skv_memory_available() > 0);
    assert_true(skv_peak_rss() > 1u << 20);
    assert_true(skv_peak_rss() < SIZE_MAX / 2);
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void add_folder(const char *folder, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* A service within a slice, each with a limit of its own, as systemd lays them out. */
static void groups_limit_memory(void **state)
{
    (void)state;
    char root[] = "/tmp/skv-groups-XXXXXX", membership[64];
    assert_non_null(mkdtemp(root));
    (void)snprintf(membership, sizeof membership, "%s/cgroup", root);
    put(root, "cgroup", "4:memory:/other\n0::/a.slice/b.service\n");
    add_folder(root, "a.slice");
    add_folder(root, "a.slice/b.service");
    assert_true(skv_memory_of_groups(membership, root) == SIZE_MAX);
    put(root, "a.slice/b.service/memory.max", "max\n");
    put(root, "a.slice/b.service/memory.current", "500\n");
    assert_true(skv_memory_of_groups(membership, root) == SIZE_MAX);
    put(root, "a.slice/b.service/memory.max", "2500\n");
    assert_int_equal(skv_memory_of_groups(membership, root), 2000);
    put(root, "a.slice/memory.max", "1000\n");
    put(root, "a.slice/memory.current", "900\n");
    assert_int_equal(skv_memory_of_groups(membership, root), 100);
    put(root, "memory.max", "800\n");
    put(root, "memory.current", "900\n");
    assert_int_equal(skv_memory_of_groups(membership, root), 0);
    assert_int_equal(skv_memory_of_groups("/tmp/skv-no-such-file", root), 0);
    assert_int_equal(temp_folder_remove(root), 0);
}

static void running_out_gives_null(void **state)
{
    (void)state;
    alloc_fail_at(1);
    assert_null(skv_alloc(1, 1));
    alloc_fail_at(1);
    assert_null(skv_alloc_zero(1, 1));
    alloc_fail_at(1);
    assert_null(skv_alloc_aligned(1, 1));
    alloc_fail_at(1);
    assert_null(skv_strndup("x", 1));
    alloc_fail_at(1);
    assert_null(skv_map_zero(1));
    assert_int_equal(alloc_fail_count(), 1);
    alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(nothing_is_something),
        cmocka_unit_test(aligned_blocks_are_aligned),
        cmocka_unit_test(copies_are_terminated),
        cmocka_unit_test(maps_are_zero),
        cmocka_unit_test(memory_is_told),
        cmocka_unit_test(groups_limit_memory),
        cmocka_unit_test(running_out_gives_null),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
