/* Checkpoints of a training run: see trainer.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/json_doc.h"
#include "format/safetensors.h"
#include "train/trainer.h"

enum { STATE_BYTES_MAX = 1 << 20, KINDS = 3, NAME_BYTES = SKV_PARAM_NAME_MAX + 8 };

/* The stored parts of a trained parameter: its value and its two moments. */
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

static void put(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value); /* a lost key shows when it is read */
}

static json_t *integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *data_json(const skv_train_data *d)
{
    const skv_documents_options *o = &d->documents;
    json_t *object = json_object();
    static const char *const learn[] = {"answers", "all", "none"};
    const bool self = d->self_tokens > 0;
    if (!self)
        put(object, d->file ? "file" : "generate", json_string(d->file ? d->file : o->tasks));
    put(object, "weight", json_real(d->weight));
    put(object, "loss", json_string(learn[d->learn]));
    if (self) {
        put(object, "self", integer(d->self_tokens));
        put(object, "temperature", json_real(d->temperature));
        if (d->begin) put(object, "begin", json_string(d->begin));
    }
    if (d->file || self) return object;
    put(object, "tokens-min", integer(o->tokens_min));
    put(object, "tokens-max", integer(o->tokens_max));
    put(object, "questions", integer(o->questions_max));
    if (o->prose) put(object, "prose", json_string(o->prose));
    return object;
}

static json_t *stage_json(const skv_train_stage *s)
{
    json_t *object = json_object(), *data = json_array();
    put(object, "steps", integer(s->steps));
    put(object, "seq", integer(s->seq));
    put(object, "rows", integer(s->rows));
    put(object, "accumulate", integer(s->accumulate));
    if (s->fuse > 0) put(object, "fuse", json_real(s->fuse));
    put(object, "lr", json_real(s->rate));
    put(object, "warmup", json_real(s->warmup_share));
    put(object, "final-lr", json_real(s->final_share));
    put(object, "schedule", integer(s->schedule));
    for (size_t i = 0; i < s->n_data; i++)
        (void)json_array_append_new(data, data_json(&s->data[i]));
    put(object, "data", data);
    return object;
}

json_t *skv_checkpoint_options(const skv_trainer *t)
{
    const skv_train_options *o = t->options;
    json_t *object = json_object(), *stages = json_array();
    put(object, "task", integer(o->task));
    put(object, "seed", integer(o->seed));
    put(object, "kv-layers", integer(t->config.kv_layers));
    put(object, "group", integer(t->config.kv_group));
    put(object, "loss", integer(o->loss));
    put(object, "trainable", integer(o->part));
    put(object, "tau", json_real(o->tau));
    put(object, "hidden-loss-mult", json_real(o->hidden_mult));
    if (o->router_loss >= 0) put(object, "router-loss", json_real(o->router_loss));
    put(object, "loss-denominator", json_string(o->all_positions ? "all" : "unmasked"));
    if (o->early_exit) put(object, "early-exit", json_true());
    if (o->held_out > 0) put(object, "held-out", integer(o->held_out));
    if (o->until_flat) put(object, "until-flat", json_true()); /* may hold rows out by itself */
    if (o->task == SKV_TRAIN_KVPRED) {
        put(object, "base-loss", json_real(o->base_loss));
        put(object, "auxiliary-loss", json_real(o->auxiliary_loss));
        put(object, "consistency-loss", json_real(o->consistency_loss));
        if (o->own_answers) put(object, "own-answers", json_true());
        put(object, "predictor-init", json_string(o->identity ? "identity" : "uniform"));
        put(object, "layers", skv_auxiliary_layers(t));
    }
    put(object, "beta1", json_real(o->beta1));
    put(object, "beta2", json_real(o->beta2));
    put(object, "eps", json_real(o->eps));
    put(object, "weight-decay", json_real(o->weight_decay));
    put(object, "clip", json_real(o->max_norm));
    put(object, "f32", json_boolean(o->f32));
    for (size_t i = 0; i < o->n_stages; i++) {
        (void)json_array_append_new(stages, stage_json(&o->stages[i]));
    }
    put(object, "stages", stages);
    return object;
}

static skv_status write_state(const skv_trainer *t, const char *path, skv_error *err)
{
    uint64_t state[SKV_BATCH_STATE_WORDS];
    json_t *root = json_object(), *words = json_array();
    skv_buf text;
    skv_buf_init(&text, STATE_BYTES_MAX);
    t->data.save(t->data.ctx, state);
    for (size_t i = 0; i < SKV_BATCH_STATE_WORDS; i++) {
        (void)json_array_append_new(words, integer(state[i]));
    }
    put(root, "step", integer(t->step));
    put(root, "adam_step", integer(t->opt.step));
    put(root, "data", words);
    if (t->held.begun) put(root, "held_first", json_real(t->held.first));
    put(root, "options", skv_checkpoint_options(t));
    skv_status status = skv_json_print(&text, root)
                            ? skv_file_write(path, text.data, text.size, err)
                            : skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    json_decref(root);
    skv_buf_release(&text);
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

/* Removes the partial checkpoint of a run that was killed while writing. */
static void clean_up(const char *folder)
{
    static const char *const inside[] = {"", "a", "b"};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        char *path = skv_path_join(folder, inside[i]);
        if (path) skv_writer_clean(path);
        skv_free(path);
    }
}

skv_status skv_checkpoint_write(const skv_trainer *t, skv_error *err)
{
    char *folder = skv_path_join(t->options->out, "checkpoint"), latest[2];
    SKV_REQUIRE(folder, err, SKV_MEMORY, "checkpoint: no memory");
    skv_status status = skv_folder_create(folder, err);
    if (status == SKV_OK) clean_up(folder);
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

/* Texts of two values that differ. */
static skv_status fail_changed(const char *path, const char *key, const json_t *then,
                               const json_t *now, skv_error *err)
{
    skv_buf a, b;
    skv_buf_init(&a, STATE_BYTES_MAX);
    skv_buf_init(&b, STATE_BYTES_MAX);
    (void)skv_json_print(&a, then);
    (void)skv_json_print(&b, now);
    const skv_status status =
        skv_fail(err, SKV_ARGUMENT, "%s: the checkpoint was written with %s %.*s, not %.*s", path,
                 key, (int)(a.size ? a.size - 1 : 0), a.data ? a.data : "",
                 (int)(b.size ? b.size - 1 : 0), b.data ? b.data : "");
    skv_buf_release(&a);
    skv_buf_release(&b);
    return status;
}

/* Looks for the first value that differs; `key` names the two. */
static skv_status compare(const char *path, const char *key, json_t *then, json_t *now,
                          skv_error *err)
{
    const bool both_objects = json_is_object(then) && json_is_object(now);
    const bool both_lists =
        json_is_array(then) && json_is_array(now) && json_array_size(then) == json_array_size(now);
    if (!both_objects && !both_lists) {
        return json_equal(then, now) ? SKV_OK : fail_changed(path, key, then, now, err);
    }
    const char *name;
    json_t *value;
    size_t i;
    json_array_foreach(now, i, value)
    {
        SKV_TRY(compare(path, key, json_array_get(then, i), value, err));
    }
    json_object_foreach(now, name, value)
    {
        json_t *other = json_object_get(then, name);
        SKV_REQUIRE(other, err, SKV_ARGUMENT, "%s: made without %s", path, name);
        SKV_TRY(compare(path, name, other, value, err));
    }
    json_object_foreach(then, name, value)
    {
        SKV_REQUIRE(json_object_get(now, name), err, SKV_ARGUMENT, "%s: made with %s", path, name);
    }
    return SKV_OK;
}

/* Compares the options in the file with those that this run would write there. */
static skv_status same_options(const skv_trainer *t, const json_t *root, const char *path,
                               skv_error *err)
{
    json_t *now = skv_checkpoint_options(t);
    json_t *then = json_object_get(root, "options");
    const skv_status status = then ? compare(path, "options", then, now, err)
                                   : skv_fail(err, SKV_FORMAT, "%s: options: missing", path);
    json_decref(now);
    return status;
}

skv_status skv_trainer_enter_stage(skv_trainer *t, skv_error *err)
{
    static const skv_schedule_kind kinds[] = {[SKV_TRAIN_CONSTANT] = SKV_SCHEDULE_CONSTANT,
                                              [SKV_TRAIN_LINEAR] = SKV_SCHEDULE_LINEAR,
                                              [SKV_TRAIN_COSINE] = SKV_SCHEDULE_COSINE};
    const skv_train_options *o = t->options;
    size_t i = 0;
    uint64_t start = 0;
    while (i + 1 < o->n_stages && t->step >= start + o->stages[i].steps)
        start += o->stages[i++].steps;
    const skv_train_stage *s = &o->stages[i];
    t->i_stage = i;
    t->stage_start = start;
    t->schedule = (skv_schedule){.kind = kinds[s->schedule],
                                 .rate = s->rate,
                                 .final_share = s->final_share,
                                 .warmup = (uint64_t)(s->warmup_share * (double)s->steps),
                                 .steps = s->steps};
    return t->feed.open(t->feed.ctx, i, &t->data, err);
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
        const json_t *word = json_array_get(data, i);
        SKV_REQUIRE(json_is_integer(word), err, SKV_FORMAT, "%s: data[%zu]", path, i);
        state[i] = (uint64_t)json_integer_value(word);
    }
    t->step = t->last_good = (uint64_t)json_integer_value(step);
    t->opt.step = (uint64_t)json_integer_value(adam);
    const json_t *first = json_object_get(root, "held_first");
    t->held.begun = json_is_number(first);
    t->held.first = json_number_value(first);
    SKV_TRY(skv_trainer_enter_stage(t, err));
    /* At the end of a stage the cursor is of the stage before. */
    return t->step > t->stage_start ? t->data.restore(t->data.ctx, state, err) : SKV_OK;
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
        status = skv_fail(err, SKV_ARGUMENT, "%s: no checkpoint to continue from", t->options->out);
    }
    if (status == SKV_OK) status = read_slot(t, folder, latest, err);
    skv_free(folder);
    return status;
}
