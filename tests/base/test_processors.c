/*
 * How many processors the control groups allow, from trees of files like the system's.
 */
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

#include "base/system.h"
#include "temp_folder.h"

enum { MAX_FILES = 12 };

typedef struct tree_file {
    const char *path, *text;
} tree_file;

typedef struct tree {
    const char *name;
    size_t expected; /* 0: no limit */
    tree_file files[MAX_FILES];
} tree;

#define MEMBERSHIP "proc/self/cgroup"
#define MOUNTS "proc/self/mountinfo"
#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT(root)                                                                             \
    "32 31 0:28 " root " /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
#define OTHER_MOUNTS                                                                               \
    "23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"                                       \
    "33 31 0:29 / /sys/fs/cgroup/cpuset rw shared:16 - cgroup cgroup rw,cpuset\n"                  \
    "34 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

static const tree trees[] = {
    {"no files", 0, {{0}}},
    {"v2, the group itself",
     2,
     {{MEMBERSHIP, "0::/app.slice/a.service\n"},
      {MOUNTS, OTHER_MOUNTS V2_MOUNT},
      {"sys/fs/cgroup/app.slice/a.service/cpu.max", "200000 100000\n"}}},
    {"v2, a container's own root",
     3,
     {{MEMBERSHIP, "0::/\n"}, {MOUNTS, V2_MOUNT}, {"sys/fs/cgroup/cpu.max", "250000 100000\n"}}},
    {"v2, a part of a processor is one",
     1,
     {{MEMBERSHIP, "0::/\n"}, {MOUNTS, V2_MOUNT}, {"sys/fs/cgroup/cpu.max", "1000 100000\n"}}},
    {"v2, another period",
     5,
     {{MEMBERSHIP, "0::/\n"}, {MOUNTS, V2_MOUNT}, {"sys/fs/cgroup/cpu.max", "45000 10000\n"}}},
    {"v2, max",
     0,
     {{MEMBERSHIP, "0::/a\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/a/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/cpu.max", "max 100000\n"}}},
    {"v2, an ancestor allows less",
     2,
     {{MEMBERSHIP, "0::/a/b/c\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "150000 100000\n"}}},
    {"v2, an ancestor allows more",
     4,
     {{MEMBERSHIP, "0::/a/b\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "1600000 100000\n"}}},
    {"v2, not a sibling's, nor one with the same beginning",
     0,
     {{MEMBERSHIP, "0::/a/b\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/a/c/cpu.max", "100000 100000\n"},
      {"sys/fs/cgroup/a/bb/cpu.max", "100000 100000\n"}}},
    {"v2, a removed group's ancestors",
     7,
     {{MEMBERSHIP, "0::/a/gone (deleted)\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/a/cpu.max", "700000 100000\n"}}},
    {"v2, mounted elsewhere, with a space",
     2,
     {{MEMBERSHIP, "0::/a\n"},
      {MOUNTS, "30 23 0:26 / /my\\040groups rw - cgroup2 none rw\n"},
      {"my groups/a/cpu.max", "200000 100000\n"}}},
    {"v2, a part of the hierarchy is mounted",
     2,
     {{MEMBERSHIP, "0::/a/b/c\n"},
      {MOUNTS, "30 23 0:26 /a/b /sys/fs/cgroup rw - cgroup2 none rw\n"},
      {"sys/fs/cgroup/c/cpu.max", "200000 100000\n"},
      {"sys/fs/cgroup/a/b/c/cpu.max", "100000 100000\n"}}},
    {"v2, the group lies outside of what is mounted",
     6,
     {{MEMBERSHIP, "0::/../other\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/cpu.max", "600000 100000\n"},
      {"other/cpu.max", "100000 100000\n"},
      {"sys/fs/other/cpu.max", "100000 100000\n"}}},
    {"v2, malformed limits",
     0,
     {{MEMBERSHIP, "0::/a/b/c/d/e/f\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/a/b/c/d/e/f/cpu.max", ""},
      {"sys/fs/cgroup/a/b/c/d/e/cpu.max", "200000\n"},
      {"sys/fs/cgroup/a/b/c/d/cpu.max", "200000 0\n"},
      {"sys/fs/cgroup/a/b/c/cpu.max", "0 100000\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "-5 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "2e5 100000\n"},
      {"sys/fs/cgroup/cpu.max", "two 100000\n"}}},
    {"v2, numbers beyond 64 bits",
     0,
     {{MEMBERSHIP, "0::/\n"},
      {MOUNTS, V2_MOUNT},
      {"sys/fs/cgroup/cpu.max", "99999999999999999999999 1\n"}}},
    {"malformed lists",
     0,
     {{MEMBERSHIP, "\n0\n0:\n0::\n0::relative\nx:cpu:/a\n:::\n"},
      {MOUNTS, "\n - \n - cgroup2\n30 23 - cgroup2 none rw\n30 23 0:26 / - cgroup2 none rw\n - "
               "cgroup cgroup cpu"},
      {"cpu.max", "100000 100000\n"},
      {"sys/fs/cgroup/cpu.max", "100000 100000\n"}}},
    {"v1",
     2,
     {{MEMBERSHIP, "5:memory:/m\n4:cpu,cpuacct:/docker/1f\n3:cpuset:/s\n"},
      {MOUNTS, OTHER_MOUNTS V1_MOUNT("/")},
      {"sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_quota_us", "150000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpuset/s/cpu.cfs_quota_us", "1\n"},
      {"sys/fs/cgroup/cpuset/s/cpu.cfs_period_us", "1\n"}}},
    {"v1, in a container: the group is the mount's root",
     4,
     {{MEMBERSHIP, "4:cpuacct,cpu:/docker/1f\n"},
      {MOUNTS, V1_MOUNT("/docker/1f")},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}}},
    {"v1, in a container: the group has another name",
     3,
     {{MEMBERSHIP, "4:cpu,cpuacct:/kubepods/pod1\n"},
      {MOUNTS, V1_MOUNT("/docker/1f")},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}}},
    {"v1, no quota below a quota",
     8,
     {{MEMBERSHIP, "4:cpu,cpuacct:/a/b\n"},
      {MOUNTS, V1_MOUNT("/")},
      {"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "800000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}}},
    {"v1, no quota, no period, a period of words",
     0,
     {{MEMBERSHIP, "4:cpu,cpuacct:/a/b\n"},
      {MOUNTS, V1_MOUNT("/")},
      {"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "long\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}}},
    {"hybrid: v1 limits, v2 has no controller",
     2,
     {{MEMBERSHIP, "4:cpu,cpuacct:/a\n0::/a\n"},
      {MOUNTS, V1_MOUNT("/") "38 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/unified/a/cgroup.procs", "1\n"}}},
    {"hybrid: both limit, v2 more",
     2,
     {{MEMBERSHIP, "4:cpu,cpuacct:/a\n0::/b\n"},
      {MOUNTS, V1_MOUNT("/") V2_MOUNT},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/b/cpu.max", "200000 100000\n"}}},
};

static void make_folders(char *path, size_t n_root)
{
    for (char *at = path + n_root + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        (void)mkdir(path, 0777);
        *at = '/';
    }
}

static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    make_folders(path, strlen(root));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void groups_limit_processors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        char root[] = "/tmp/skv-processors-XXXXXX";
        assert_non_null(mkdtemp(root));
        for (const tree_file *file = trees[i].files; file < trees[i].files + MAX_FILES; file++) {
            if (file->path) put(root, file->path, file->text);
        }
        size_t expected = trees[i].expected ? trees[i].expected : SIZE_MAX;
        size_t found = skv_processors_of_groups(root);
        if (found != expected) fail_msg("%s: %zu, expected %zu", trees[i].name, found, expected);
        assert_int_equal(temp_folder_remove(root), 0);
    }
}

/* Trees as of machines with one, two and four nodes, of which one has no memory. */
static void memory_nodes_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *online, *has_memory;
        size_t expected;
    } cases[] = {
        {NULL, NULL, 1},        {"0\n", "0\n", 1},   {"0-1\n", "0-1\n", 2}, {"0-3\n", "0,2-3\n", 3},
        {"0-1\n", NULL, 2},     {"0,2\n", "2\n", 1}, {"0-x\n", NULL, 1},    {"4-1\n", NULL, 1},
        {"0-99999\n", NULL, 1}, {"", NULL, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char root[] = "/tmp/skv-processors-XXXXXX";
        assert_non_null(mkdtemp(root));
        const char *online = cases[i].online, *has_memory = cases[i].has_memory;
        if (online) put(root, "sys/devices/system/node/online", online);
        if (has_memory) put(root, "sys/devices/system/node/has_memory", has_memory);
        assert_int_equal(skv_memory_nodes(root), cases[i].expected);
        assert_int_equal(temp_folder_remove(root), 0);
    }
}

static const skv_processor_set all_processors = {
    .bits = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)}};

/* Two sockets, whose threads of a core are numbered apart, and a node of memory alone. */
static void processors_of_nodes_are_found(void **state)
{
    (void)state;
    char root[] = "/tmp/skv-processors-XXXXXX";
    skv_nodes nodes;
    assert_non_null(mkdtemp(root));
    skv_nodes_find(root, &all_processors, &nodes);
    assert_int_equal(nodes.n, 1);
    put(root, "sys/devices/system/node/has_memory", "0,2-3\n");
    put(root, "sys/devices/system/node/node0/cpulist", "0-31,64-95\n");
    put(root, "sys/devices/system/node/node2/cpulist", "32-63,96-127\n");
    put(root, "sys/devices/system/node/node3/cpulist", "\n");
    skv_nodes_find(root, &all_processors, &nodes);
    assert_int_equal(nodes.n, 2);
    assert_int_equal(nodes.number[1], 2);
    assert_int_equal(nodes.n_processors[0], 64);
    assert_true(nodes.processors[1].bits[0] == UINT64_C(0xffffffff) << 32);
    assert_true(nodes.processors[1].bits[1] == UINT64_C(0xffffffff) << 32);
    const skv_processor_set few = {.bits = {15, 1}}; /* as taskset -c 0-3,64 */
    skv_nodes_find(root, &few, &nodes);
    assert_int_equal(nodes.n, 1);
    const skv_processor_set uneven = {.bits = {15 | UINT64_C(1) << 40}};
    skv_nodes_find(root, &uneven, &nodes);
    assert_int_equal(nodes.n, 2);
    assert_int_equal(nodes.n_processors[0], 4);
    assert_int_equal(nodes.n_processors[1], 1);
    assert_int_equal(temp_folder_remove(root), 0);
}

/* Lines of mountinfo may be longer than any buffer. */
static void long_lines_are_skipped(void **state)
{
    (void)state;
    enum { N = 100000 };
    char root[] = "/tmp/skv-processors-XXXXXX";
    assert_non_null(mkdtemp(root));
    char *text = malloc(2 * N + 1000);
    assert_non_null(text);
    memset(text, 'x', 2 * N);
    text[N] = '\n';
    (void)snprintf(text + 2 * N, 1000, "\n" V2_MOUNT);
    put(root, MOUNTS, text);
    (void)snprintf(text + 2 * N, 1000, "\n0::/a\n");
    put(root, MEMBERSHIP, text);
    put(root, "sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    assert_int_equal(skv_processors_of_groups(root), 2);
    free(text);
    assert_int_equal(temp_folder_remove(root), 0);
}

static void this_process_has_one_at_least(void **state)
{
    (void)state;
    assert_true(skv_processors_affinity(pthread_self()) >= 1);
    assert_true(skv_processors_allowed() >= 1);
    assert_true(skv_processors_allowed() <= skv_processors_affinity(pthread_self()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_limit_processors),       cmocka_unit_test(memory_nodes_are_counted),
        cmocka_unit_test(processors_of_nodes_are_found), cmocka_unit_test(long_lines_are_skipped),
        cmocka_unit_test(this_process_has_one_at_least),
    };
    return cmocka_run_group_tests_name("processors", tests, NULL, NULL);
}
