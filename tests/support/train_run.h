/* What the tests of whole training runs share: a folder with a text and places for models, a record
 * of steps, and the options of a short run. A test that includes this defines _XOPEN_SOURCE 700
 * first. */
#ifndef SKV_TESTS_TRAIN_RUN_H
#define SKV_TESTS_TRAIN_RUN_H

#include "temp_folder.h"

#include <string.h>

#include "format/source.h"
#include "text_ids.h"
#include "trained.h"

typedef struct fixture {
    char root[64];
    char ids[96], base[96];
    char out[6][96];
} fixture;

typedef struct record {
    double loss[128], norm[128], auxiliary[128], consistency[128];
    uint64_t stop_at; /* 0: never */
} record;

static inline int start(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    memcpy(f->root, "/tmp/skv-train-XXXXXX", 22);
    if (!mkdtemp(f->root)) return -1;
    char root[sizeof f->root]; /* a copy, so that the compiler sees no overlap */
    memcpy(root, f->root, sizeof root);
    (void)snprintf(f->ids, sizeof f->ids, "%s/ids.json", root);
    (void)snprintf(f->base, sizeof f->base, "%s/base", root);
    for (int i = 0; i < 6; i++) (void)snprintf(f->out[i], sizeof f->out[i], "%s/out-%d", root, i);
    *state = f;
    return text_ids_write(f->ids, 2000, 1);
}

static inline int finish(void **state)
{
    fixture *f = *state;
    (void)temp_folder_remove(f->root);
    free(f);
    return 0;
}

static inline bool note(void *user, const skv_train_progress *p)
{
    record *r = user;
    r->loss[p->step - 1] = p->loss;
    r->norm[p->step - 1] = p->norm;
    r->auxiliary[p->step - 1] = p->auxiliary;
    r->consistency[p->step - 1] = p->consistency;
    return p->step != r->stop_at;
}

/* A run of n_steps over ids, which writes to `out`. */
static inline skv_train_options short_run(skv_train_task task, const char *ids, const char *out,
                                          size_t n_steps, record *r)
{
    skv_train_options o = skv_train_options_default(task);
    o.out = out;
    o.stages[0].data[0] = skv_train_data_default(ids);
    o.stages[0].n_data = 1;
    o.stages[0].seq = 32;
    o.stages[0].rows = 2;
    o.stages[0].steps = n_steps;
    o.stages[0].rate = 2e-3;
    o.checkpoint_every = 4;
    o.threads = 2;
    o.on_step = note;
    o.user = r;
    return o;
}

static inline skv_source *open_source(const char *path)
{
    skv_source *source = NULL;
    skv_error err;
    if (skv_source_open(path, &source, &err) != SKV_OK) fail_msg("%s", err.text);
    return source;
}

static inline float *read_whole(const skv_tensor *t)
{
    float *x = malloc(skv_tensor_rows(t) * skv_tensor_columns(t) * sizeof *x);
    skv_tensor_read_rows(t, 0, skv_tensor_rows(t), x);
    return x;
}

#endif
