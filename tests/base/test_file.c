/* Files: maps, whole reads with a bound, writes that are complete or absent. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "temp_folder.h"

static char *at(const char *folder, const char *name)
{
    char *path = skv_path_join(folder, name);
    assert_non_null(path);
    return path;
}

static int make_folder(void **state)
{
    return temp_folder_make(state, "file");
}

static size_t n_entries(const char *folder)
{
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    size_t n = 0;
    struct dirent *entry;
    while ((entry = readdir(stream))) n += entry->d_name[0] != '.';
    (void)closedir(stream);
    return n;
}

static void assert_content(const char *path, const char *text)
{
    char *data;
    size_t n;
    skv_error err;
    assert_int_equal(skv_file_read(path, 1 << 20, &data, &n, &err), SKV_OK);
    assert_int_equal(n, strlen(text));
    assert_string_equal(data, text);
    skv_free(data);
}

static void write_read_and_map(void **state)
{
    char *path = at(*state, "file");
    skv_error err;
    const size_t sizes[] = {0, 1, 4095, 4096, 4097, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i], n_read;
        unsigned char *data = skv_alloc(n, 1);
        for (size_t j = 0; j < n; j++) data[j] = (unsigned char)(j * 7 + i);
        assert_int_equal(skv_file_write(path, data, n, &err), SKV_OK);
        char *back;
        assert_int_equal(skv_file_read(path, n, &back, &n_read, &err), SKV_OK);
        assert_int_equal(n_read, n);
        assert_int_equal(back[n], 0);
        skv_file_map map;
        assert_int_equal(skv_file_map_open(path, &map, &err), SKV_OK);
        assert_int_equal(map.size, n);
        if (n) {
            assert_memory_equal(back, data, n);
            assert_memory_equal(map.data, data, n);
            skv_file_map_forget(map.data + 1, n - 1);
            assert_memory_equal(map.data, data, n);
        }
        skv_file_map_close(&map);
        skv_file_map_close(&map); /* harmless */
        skv_free(back);
        skv_free(data);
    }
    assert_int_equal(n_entries(*state), 1);
    skv_free(path);
}

static void a_read_has_a_bound(void **state)
{
    char *path = at(*state, "file"), *data = NULL;
    size_t n = 77;
    skv_error err;
    assert_int_equal(skv_file_write(path, "12345", 5, &err), SKV_OK);
    assert_int_equal(skv_file_read(path, 4, &data, &n, &err), SKV_RANGE);
    assert_null(data);
    assert_int_equal(n, 77);
    assert_non_null(strstr(err.text, "file: 5 bytes, at most 4"));
    skv_free(path);
}

static void only_regular_files_are_read(void **state)
{
    char *fifo = at(*state, "fifo"), *none = at(*state, "none"), *data;
    size_t n;
    skv_error err;
    skv_file_map map;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *paths[] = {fifo, none, *state, "", "/dev/zero"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(skv_file_read(paths[i], 100, &data, &n, &err), SKV_IO);
        assert_int_equal(strncmp(err.text, paths[i], strlen(paths[i])), 0);
        assert_int_equal(skv_file_map_open(paths[i], &map, &err), SKV_IO);
        assert_false(skv_file_exists(paths[i]));
    }
    assert_true(skv_file_is_folder(*state));
    assert_false(skv_file_is_folder(fifo));
    assert_false(skv_file_is_folder(none));
    skv_free(fifo);
    skv_free(none);
}

static void folders_are_created_once(void **state)
{
    char *folder = at(*state, "sub"), *deep = at(folder, "a/b"), *file = at(*state, "file");
    skv_error err;
    assert_int_equal(skv_folder_create(folder, &err), SKV_OK);
    assert_int_equal(skv_folder_create(folder, &err), SKV_OK);
    assert_int_equal(skv_folder_create(deep, &err), SKV_IO);
    assert_int_equal(skv_file_write(file, "", 0, &err), SKV_OK);
    assert_int_equal(skv_folder_create(file, &err), SKV_IO);
    assert_int_equal(rmdir(folder), 0);
    skv_free(folder);
    skv_free(deep);
    skv_free(file);
}

static void paths_are_joined(void **state)
{
    (void)state;
    const char *cases[][3] = {{"a", "b", "a/b"},        {"a/", "b", "a/b"}, {"a//", "b", "a/b"},
                              {"/", "b", "//b"},        {".", "b", "./b"},  {"", "b", "/b"},
                              {"a/b", "c/d", "a/b/c/d"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = at(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        skv_free(path);
    }
}

static void an_aborted_write_leaves_the_old_file(void **state)
{
    char *path = at(*state, "file");
    skv_error err;
    skv_writer writer;
    assert_int_equal(skv_file_write(path, "old", 3, &err), SKV_OK);
    assert_int_equal(skv_writer_open(&writer, path, &err), SKV_OK);
    assert_int_equal(skv_writer_put(&writer, "new", 3, &err), SKV_OK);
    assert_int_equal(n_entries(*state), 2);
    assert_content(path, "old");
    skv_writer_abort(&writer);
    assert_content(path, "old");
    assert_int_equal(n_entries(*state), 1);
    skv_writer_abort(&writer); /* harmless */

    assert_int_equal(skv_writer_open(&writer, path, &err), SKV_OK);
    assert_int_equal(skv_writer_put(&writer, "new", 3, &err), SKV_OK);
    assert_int_equal(skv_writer_commit(&writer, &err), SKV_OK);
    skv_writer_abort(&writer);
    assert_content(path, "new");
    assert_int_equal(n_entries(*state), 1);
    skv_free(path);
}

/* A writer that is killed between any two writes: the old file is whole. */
static void a_killed_writer_leaves_the_old_file(void **state)
{
    char *path = at(*state, "file");
    skv_error err;
    assert_int_equal(skv_file_write(path, "old", 3, &err), SKV_OK);
    for (int n_puts = 0; n_puts < 4; n_puts++) {
        pid_t child = fork();
        if (child == 0) {
            static const char block[100000];
            skv_writer writer;
            if (skv_writer_open(&writer, path, NULL) != SKV_OK) _exit(1);
            for (int i = 0; i < n_puts; i++) {
                if (skv_writer_put(&writer, block, sizeof block, NULL) != SKV_OK) _exit(1);
            }
            (void)raise(SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_content(path, "old");
    }
    assert_int_equal(skv_file_write(path, "new", 3, &err), SKV_OK);
    assert_content(path, "new");
    skv_free(path);
}

/* A full disk, played by a limit on the size of files. */
static void a_failed_write_leaves_the_old_file(void **state)
{
    char *path = at(*state, "file");
    skv_error err;
    assert_int_equal(skv_file_write(path, "old", 3, &err), SKV_OK);
    pid_t child = fork();
    if (child == 0) {
        static const char block[100000];
        const struct rlimit limit = {50000, 50000};
        if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
        skv_status whole = skv_file_write(path, block, sizeof block, &err);
        _exit(whole == SKV_IO && strstr(err.text, "cannot write: File too large") ? 42 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    assert_content(path, "old");
    assert_int_equal(n_entries(*state), 1);
    skv_free(path);
}

static void a_write_into_nowhere_is_refused(void **state)
{
    char *path = at(*state, "none/file");
    skv_error err;
    assert_int_equal(skv_file_write(path, "x", 1, &err), SKV_IO);
    assert_non_null(strstr(err.text, "none/file"));
    skv_free(path);
    assert_int_equal(skv_file_write(*state, "x", 1, &err), SKV_IO); /* a folder stands there */
    assert_int_equal(n_entries(*state), 0);
}

static bool write_and_read(void *arg)
{
    char *data;
    size_t n;
    skv_error err;
    if (skv_file_write(arg, "text", 4, &err) != SKV_OK) return false;
    if (skv_file_read(arg, 100, &data, &n, &err) != SKV_OK) return false;
    skv_free(data);
    skv_file_map map;
    if (skv_file_map_open(arg, &map, &err) != SKV_OK) return false;
    skv_file_map_close(&map);
    return true;
}

static void survives_running_out_of_memory(void **state)
{
    char *path = at(*state, "file");
    size_t n = alloc_fail_each(write_and_read, path, true);
    assert_in_range(n, 4, 20);
    assert_int_equal(n_entries(*state), 1);
    skv_free(path);
}

/* What a writer that was killed has left goes; what is being written, or is no such file, stays. */
static void leftovers_are_removed(void **state)
{
    const char *folder = *state;
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    assert_true(gone > 0 && waitpid(gone, NULL, 0) == gone);
    const struct {
        const char *begin, *end;
        pid_t pid;
        bool stays;
    } files[] = {{"a.tmp-", "", gone, false},    {"a.tmp-1.tmp-", "", gone, false},
                 {"a.tmp-", "", getpid(), true}, {"a.tmp-", "x", gone, true},
                 {"a.tmp-0", "", gone, true},    {"a.tmp-99999999", "", gone, true},
                 {"tmp-", "", gone, true}};
    char path[512];
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            (void)snprintf(path, sizeof path, "%s/%s%ld%s", folder, files[i].begin,
                           (long)files[i].pid, files[i].end);
            skv_error err;
            if (pass == 0) assert_int_equal(skv_file_write(path, "x", 1, &err), SKV_OK);
            if (pass == 1) assert_int_equal(skv_file_exists(path), files[i].stays);
        }
        if (pass == 0) skv_writer_clean(folder);
    }
    skv_writer_clean("/nonexistent/folder");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, temp_folder_drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(leftovers_are_removed),
        IN_FOLDER(write_read_and_map),
        IN_FOLDER(a_read_has_a_bound),
        IN_FOLDER(only_regular_files_are_read),
        IN_FOLDER(folders_are_created_once),
        cmocka_unit_test(paths_are_joined),
        IN_FOLDER(an_aborted_write_leaves_the_old_file),
        IN_FOLDER(a_killed_writer_leaves_the_old_file),
        IN_FOLDER(a_failed_write_leaves_the_old_file),
        IN_FOLDER(a_write_into_nowhere_is_refused),
        IN_FOLDER(survives_running_out_of_memory),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
