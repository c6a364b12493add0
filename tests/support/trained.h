/* What tests of training share: a run that must succeed, and two folders with one file alike. */
#ifndef SKV_TESTS_TRAINED_H
#define SKV_TESTS_TRAINED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "skv/train.h"

static inline void run_ok(const skv_train_options *o)
{
    skv_error err;
    if (skv_train_run(o, &err) != SKV_OK) fail_msg("%s", err.text);
}

/* The file `name` has the same bytes in folders a and b. */
static inline void check_same_file(const char *a, const char *b, const char *name)
{
    const char *const folders[2] = {a, b};
    char *data[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        skv_error err;
        char *path = skv_path_join(folders[i], name);
        if (skv_file_read(path, 1 << 30, &data[i], &n[i], &err) != SKV_OK) {
            fail_msg("%s", err.text);
        }
        skv_free(path);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    skv_free(data[0]);
    skv_free(data[1]);
}

#endif
