/* Checkpoints of a training run: see trainer.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/json_doc.h"
#include "format/safetensors.h"
#include "format/safetensors_write.h"
#include "train/trainer.h"

enum { STATE_BYTES_MAX = 1 << 20, KINDS = 3, NAME_BYTES = SKV_PARAM_NAME_MAX + 8 };

/* What is kept of a trained parameter: its value and its two moments. */
static const char *const suffixes[KINDS] = {"", ".adam_m", ".adam_v"};

static float *values_of(const skv_trainer *t, const skv_param *p, size_t kind)
{
    size_t at = (size_t)(p->grad - skv_net_params(t->net)->grads);
    switch (kind) {
    case 0: return p->w;
    case 1: return t->opt.m + at;
    default: return t->opt.v + at;
    }
}

static char *join3(const char *a, const char *b, const char *c)
{
    char *ab = skv_path_join(a, b), *abc = ab ? skv_path_join(ab, c) : NULL;
    skv_free(ab);
    return abc;
}

/* ---- writing ---- */

static skv_status write_tensors(const skv_trainer *t, const char *path, skv_error *err)
{
    const skv_params *params = skv_net_params(t->net);
    size_t n = 0;
    skv_tensor_out *outs = skv_alloc_zero(KINDS * params->n, sizeof *outs);
    char *names = skv_alloc(KINDS * params->n, NAME_BYTES);
    skv_status status = SKV_OK;
    if (!outs || !names) status = skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    for (size_t i = 0; status == SKV_OK && i < KINDS * params->n; i++) {
        const skv_param *p = &params->at[i / KINDS];
        if (!p->grad) continue;
        char *name = names + n * NAME_BYTES;
        (void)snprintf(name, NAME_BYTES, "%s%s", p->name, suffixes[i % KINDS]);
        outs[n++] = (skv_tensor_out){.name = name,
                                     .type = SKV_DTYPE_F32,
                                     .n_dims = 2,
                                     .dims = {p->n_rows, p->n_columns},
                                     .data = values_of(t, p, i % KINDS)};
    }
    if (status == SKV_OK) status = skv_safetensors_write(path, outs, n, err);
    skv_free(outs);
    skv_free(names);
    return status;
}

/* What a run must have in common with the one that it continues. */
static void put_options(const skv_trainer *t, skv_buf *out)
{
    const skv_train_options *o = t->options;
    (void)skv_buf_printf(out,
                         "\"seq\": %zu, \"rows\": %zu, \"accumulate\": %zu, \"steps\": %" PRIu64
                         ", \"seed\": \"%" PRIu64 "\", \"kv_layers\": %zu, \"group\": %zu, "
                         "\"task\": %d, \"loss\": %d, \"part\": %d, \"f32\": %d",
                         o->seq, o->rows, o->accumulate, o->steps, o->seed, t->config.kv_layers,
                         t->config.kv_group, (int)o->task, (int)o->loss, (int)o->part, o->f32);
}

static skv_status write_state(const skv_trainer *t, const char *path, skv_error *err)
{
    uint64_t state[SKV_BATCH_STATE_WORDS];
    skv_buf json;
    skv_buf_init(&json, STATE_BYTES_MAX);
    t->data.save(t->data.ctx, state);
    (void)skv_buf_printf(&json, "{\"step\": %" PRIu64 ", \"adam_step\": %" PRIu64 ", ", t->step,
                         t->opt.step);
    put_options(t, &json);
    (void)skv_buf_text(&json, ", \"data\": [");
    for (size_t i = 0; i < SKV_BATCH_STATE_WORDS; i++) {
        (void)skv_buf_printf(&json, "%s\"%" PRIu64 "\"", i > 0 ? ", " : "", state[i]);
    }
    (void)skv_buf_text(&json, "]}\n");
    skv_status status = json.failed ? skv_fail(err, SKV_MEMORY, "%s: no memory", path)
                                    : skv_file_write(path, json.data, json.size, err);
    skv_buf_release(&json);
    return status;
}

/* The folder that latest.json names: "a" or "b"; "" when there is none. */
static skv_status read_latest(const char *folder, char name[2], skv_error *err)
{
    char *path = skv_path_join(folder, "latest.json"), *text = NULL;
    size_t n;
    name[0] = name[1] = 0;
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", folder);
    skv_status status = SKV_OK;
    if (skv_file_exists(path)) {
        json_t *root = NULL;
        status = skv_file_read(path, STATE_BYTES_MAX, &text, &n, err);
        if (status == SKV_OK) status = skv_json_load(text, n, STATE_BYTES_MAX, path, &root, err);
        if (status == SKV_OK) {
            skv_json_reader r = {.object = root, .name = path, .err = err};
            const char *found = skv_json_text(&r, "folder", "");
            status = r.status;
            if (status == SKV_OK && strcmp(found, "a") != 0 && strcmp(found, "b") != 0) {
                status = skv_fail(err, SKV_FORMAT, "%s: folder \"%s\"", path, found);
            }
            if (status == SKV_OK) name[0] = found[0];
        }
        json_decref(root);
    }
    skv_free(text);
    skv_free(path);
    return status;
}

static skv_status write_slot(const skv_trainer *t, const char *folder, const char *slot,
                             skv_error *err)
{
    char *dir = skv_path_join(folder, slot), *latest = skv_path_join(folder, "latest.json");
    char *weights = join3(folder, slot, "state.safetensors");
    char *state = join3(folder, slot, "state.json");
    char line[96];
    int n =
        snprintf(line, sizeof line, "{\"folder\": \"%s\", \"step\": %" PRIu64 "}\n", slot, t->step);
    skv_status status = SKV_OK;
    if (!dir || !latest || !weights || !state) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    }
    if (status == SKV_OK) status = skv_folder_create(dir, err);
    if (status == SKV_OK) status = write_tensors(t, weights, err);
    if (status == SKV_OK) status = write_state(t, state, err);
    if (status == SKV_OK) status = skv_file_write(latest, line, (size_t)n, err);
    skv_free(dir);
    skv_free(latest);
    skv_free(weights);
    skv_free(state);
    return status;
}

skv_status skv_checkpoint_write(const skv_trainer *t, skv_error *err)
{
    char *folder = skv_path_join(t->options->out, "checkpoint"), latest[2];
    SKV_REQUIRE(folder, err, SKV_MEMORY, "checkpoint: no memory");
    skv_status status = skv_folder_create(folder, err);
    if (status == SKV_OK) status = read_latest(folder, latest, err);
    if (status == SKV_OK) status = write_slot(t, folder, latest[0] == 'a' ? "b" : "a", err);
    skv_free(folder);
    return status;
}

/* ---- reading ---- */

static skv_status read_tensors(skv_trainer *t, const char *path, skv_error *err)
{
    skv_safetensors *file;
    SKV_TRY(skv_safetensors_open(path, &file, err));
    const skv_params *params = skv_net_params(t->net);
    skv_status status = SKV_OK;
    for (size_t i = 0; status == SKV_OK && i < KINDS * params->n; i++) {
        const skv_param *p = &params->at[i / KINDS];
        char name[NAME_BYTES];
        if (!p->grad) continue;
        (void)snprintf(name, sizeof name, "%s%s", p->name, suffixes[i % KINDS]);
        const skv_tensor *tensor = skv_safetensors_find(file, name);
        if (!tensor || tensor->type != SKV_DTYPE_F32 || skv_tensor_rows(tensor) != p->n_rows ||
            skv_tensor_columns(tensor) != p->n_columns) {
            status = skv_fail(err, SKV_FORMAT, "%s: no %s of [%zu,%zu]", path, name, p->n_rows,
                              p->n_columns);
        } else {
            skv_tensor_read_rows(tensor, 0, p->n_rows, values_of(t, p, i % KINDS));
        }
    }
    skv_safetensors_close(file);
    return status;
}

/* The member as it stands in the file against what this run would write there. */
static skv_status same_options(const skv_trainer *t, const json_t *root, const char *path,
                               skv_error *err)
{
    skv_buf now;
    json_t *mine = NULL;
    const char *key;
    json_t *value;
    skv_buf_init(&now, STATE_BYTES_MAX);
    (void)skv_buf_byte(&now, '{');
    put_options(t, &now);
    (void)skv_buf_byte(&now, '}');
    skv_status status = now.failed
                            ? skv_fail(err, SKV_MEMORY, "%s: no memory", path)
                            : skv_json_load(now.data, now.size, STATE_BYTES_MAX, path, &mine, err);
    json_object_foreach(mine, key, value)
    {
        if (status == SKV_OK && !json_equal(value, json_object_get(root, key))) {
            status = skv_fail(err, SKV_ARGUMENT, "%s: made with another \"%s\"", path, key);
        }
    }
    json_decref(mine);
    skv_buf_release(&now);
    return status;
}

static skv_status apply_state(skv_trainer *t, const json_t *root, const char *path, skv_error *err)
{
    uint64_t state[SKV_BATCH_STATE_WORDS];
    SKV_TRY(same_options(t, root, path, err));
    const json_t *data = json_object_get(root, "data"), *step = json_object_get(root, "step");
    const json_t *adam = json_object_get(root, "adam_step");
    SKV_REQUIRE(json_is_integer(step) && json_is_integer(adam) &&
                    json_array_size(data) == SKV_BATCH_STATE_WORDS,
                err, SKV_FORMAT, "%s: not a training state", path);
    for (size_t i = 0; i < SKV_BATCH_STATE_WORDS; i++) {
        const char *word = json_string_value(json_array_get(data, i));
        SKV_REQUIRE(word, err, SKV_FORMAT, "%s: data[%zu]", path, i);
        state[i] = strtoull(word, NULL, 10);
    }
    SKV_TRY(t->data.restore(t->data.ctx, state, err));
    t->step = t->last_good = (uint64_t)json_integer_value(step);
    t->opt.step = (uint64_t)json_integer_value(adam);
    return SKV_OK;
}

static skv_status read_slot(skv_trainer *t, const char *folder, const char *slot, skv_error *err)
{
    char *weights = join3(folder, slot, "state.safetensors"), *text = NULL;
    char *path = join3(folder, slot, "state.json");
    json_t *root = NULL;
    size_t n;
    skv_status status = weights && path ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory", slot);
    if (status == SKV_OK) status = skv_file_read(path, STATE_BYTES_MAX, &text, &n, err);
    if (status == SKV_OK) status = skv_json_load(text, n, STATE_BYTES_MAX, path, &root, err);
    if (status == SKV_OK) status = apply_state(t, root, path, err);
    if (status == SKV_OK) status = read_tensors(t, weights, err);
    json_decref(root);
    skv_free(text);
    skv_free(path);
    skv_free(weights);
    return status;
}

skv_status skv_checkpoint_read(skv_trainer *t, skv_error *err)
{
    char *folder = skv_path_join(t->options->out, "checkpoint"), latest[2];
    SKV_REQUIRE(folder, err, SKV_MEMORY, "checkpoint: no memory");
    skv_status status = read_latest(folder, latest, err);
    if (status == SKV_OK && !latest[0]) {
        status = skv_fail(err, SKV_ARGUMENT, "%s: no checkpoint to go on from", t->options->out);
    }
    if (status == SKV_OK) status = read_slot(t, folder, latest, err);
    skv_free(folder);
    return status;
}
