/* Training: a recipe's keys, a step's progress. */
#include "skvpy.h"

#include "skv/recipe.h"
#include "skv/self_text.h"
#include "skv/tools.h"

#define STEP(member, kind) SKVPY_FIELD(skv_train_progress, member, kind)
static const skvpy_field step_fields[] = {
    STEP(step, COUNT),      STEP(steps, COUNT),      STEP(stage, SIZE),
    STEP(loss, NUMBER),     STEP(hidden, NUMBER),    STEP(rate, NUMBER),
    STEP(norm, NUMBER),     STEP(tokens, SIZE),      STEP(loss_tokens, SIZE),
    STEP(seconds, NUMBER),  STEP(tokens_s, NUMBER),  STEP(eta, NUMBER),
    STEP(checkpoint, FLAG), STEP(auxiliary, NUMBER), STEP(consistency, NUMBER),
    STEP(balance, NUMBER),  STEP(exit, NUMBER),      {0}};

static bool on_step(void *user, const skv_train_progress *progress)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *fields = skvpy_dump(step_fields, progress);
    const bool good = fields && skvpy_tell(user, "(O)", fields);
    Py_XDECREF(fields);
    PyGILState_Release(gil);
    return good;
}

/* Sets the keys of a list of (key, value); a further "data" is added to the first. */
static bool set_keys(skv_recipe *recipe, PyObject *keys)
{
    bool has_data = false;
    for (Py_ssize_t i = 0; i < PyList_Size(keys); i++) {
        const char *key, *value;
        if (!PyArg_ParseTuple(PyList_GetItem(keys, i), "ss", &key, &value)) return false;
        const bool data = PyOS_stricmp(key, "data") == 0;
        skv_error err = {0};
        const skv_status status = data && has_data ? skv_recipe_add_data(recipe, value, &err)
                                                   : skv_recipe_set(recipe, key, value, &err);
        has_data = has_data || data;
        if (status == SKV_OK) continue;
        skvpy_fail(status, &err);
        return false;
    }
    return true;
}

/* Text of the teacher for a source; skv_text_free(*path). */
static skv_status write_text(const skv_train_options *train, const skv_train_stage *stage,
                             const skv_train_data *data, char **path, skv_error *err)
{
    const skv_self_options how = {.tokens = data->self_tokens,
                                  .length = stage->seq,
                                  .temperature = data->temperature,
                                  .seed = train->seed,
                                  .begin = data->begin};
    skv_model_info info;
    skv_status status = skv_model_info_read(train->model, &info, err);
    if (status != SKV_OK) return status;
    skv_engine_options options = skv_self_engine_options(&how, info.swiftkv);
    options.threads = train->threads;
    options.cpu = train->cpu;
    skv_engine *engine = NULL;
    skv_vocab *vocab = NULL;
    status = skv_engine_open(train->model, &options, &engine, err);
    if (status == SKV_OK && data->begin) status = skv_vocab_open(train->model, &vocab, err);
    if (status == SKV_OK) status = skv_self_write(engine, vocab, train->out, &how, path, err);
    skv_vocab_close(vocab);
    skv_engine_close(engine);
    return status;
}

enum { TEXTS_MAX = SKV_TRAIN_STAGES_MAX * SKV_TRAIN_DATA_MAX };

/* The run, behind the texts that the teacher writes. */
static skv_status run(skv_train_options *train, skv_error *err)
{
    char *texts[TEXTS_MAX];
    size_t n = 0;
    skv_status status = SKV_OK;
    for (size_t i = 0; i < train->n_stages; i++) {
        skv_train_stage *stage = &train->stages[i];
        for (size_t j = 0; j < stage->n_data && status == SKV_OK; j++) {
            skv_train_data *data = &stage->data[j];
            if (data->self_tokens == 0 || data->file) continue;
            status = write_text(train, stage, data, &texts[n], err);
            if (status == SKV_OK) data->file = texts[n++];
        }
    }
    if (status == SKV_OK) status = skv_train_run(train, err);
    while (n > 0) skv_text_free(texts[--n]);
    return status;
}

/* (task, model, out, recipe file or None, keys, resume, on_step) */
static PyObject *train(PyObject *module, PyObject *args)
{
    (void)module;
    static const char *const tasks[] = {"distill", "finetune", "scratch", "kvpred", "mtp"};
    const char *model, *out, *file;
    PyObject *keys, *callback;
    int i_task, resume;
    if (!PyArg_ParseTuple(args, "isszO!pO", &i_task, &model, &out, &file, &PyList_Type, &keys,
                          &resume, &callback))
        return NULL;
    if (i_task < 0 || (size_t)i_task >= sizeof tasks / sizeof tasks[0]) {
        return PyErr_Format(PyExc_ValueError, "task: %d", i_task);
    }
    skv_recipe recipe;
    skv_recipe_init(&recipe, (skv_train_task)i_task);
    skv_error err = {0};
    skv_status status = file ? skv_recipe_read(file, &recipe, &err) : SKV_OK;
    if (status != SKV_OK || !set_keys(&recipe, keys)) {
        skv_recipe_release(&recipe);
        return skvpy_fail(status, &err);
    }
    skv_train_options *options = &recipe.options;
    options->model = model;
    options->out = out;
    options->resume = resume;
    options->on_step = on_step;
    options->user = callback;
    Py_BEGIN_ALLOW_THREADS status = run(options, &err);
    Py_END_ALLOW_THREADS skv_recipe_release(&recipe);
    return skvpy_done(status, &err);
}

PyMethodDef skvpy_learn_methods[] = {{"train", train, METH_VARARGS, NULL}, {0}};
