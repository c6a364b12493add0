/* Evaluation: options, and the report as a list of dictionaries. */
#include "skvpy.h"

#include "skv/eval.h"

#define OPTION(member, kind) SKVPY_FIELD(skv_eval_options, member, kind)
static const skvpy_field option_fields[] = {
    OPTION(tasks, TEXT),       OPTION(count, SIZE), OPTION(depth_bins, SIZE), OPTION(max_new, SIZE),
    OPTION(scored, SIZE),      OPTION(seed, COUNT), OPTION(prose, TEXT),      OPTION(primer, TEXT),
    OPTION(no_template, FLAG), OPTION(log, TEXT),   OPTION(resume, FLAG),     {0}};

typedef struct asking {
    skv_engine *engine;
    PyObject *progress;
} asking;

static void on_batch(void *user, const char *task, size_t done, size_t total)
{
    const asking *a = user;
    if (!skvpy_tell(a->progress, "(snn)", task, (Py_ssize_t)done, (Py_ssize_t)total) &&
        done < total) {
        skv_cancel(a->engine);
    }
}

static PyObject *of_estimate(const skv_eval_estimate *e)
{
    return Py_BuildValue("{s:s,s:d,s:d,s:d,s:n,s:N}", "name", e->name, "value", e->value, "low",
                         e->low, "high", e->high, "n", (Py_ssize_t)e->n, "is_share",
                         PyBool_FromLong(e->is_share));
}

static PyObject *of_task(const skv_eval_task *task)
{
    PyObject *estimates = PyList_New(0), *rows = PyList_New(0);
    bool good = estimates && rows;
    for (size_t i = 0; good && i < task->n_estimates; i++) {
        PyObject *e = of_estimate(&task->estimates[i]);
        good = e && PyList_Append(estimates, e) == 0;
        Py_XDECREF(e);
    }
    for (size_t i = 0; good && i < task->n_rows; i++) {
        PyObject *row = Py_BuildValue("{s:n,s:N}", "length", (Py_ssize_t)task->rows[i].length,
                                      "estimate", of_estimate(&task->rows[i].estimate));
        good = row && PyList_Append(rows, row) == 0;
        Py_XDECREF(row);
    }
    if (good) {
        return Py_BuildValue("{s:s,s:s,s:n,s:n,s:N,s:N}", "name", task->name, "format",
                             task->format, "n", (Py_ssize_t)task->n, "skipped",
                             (Py_ssize_t)task->n_skipped, "estimates", estimates, "rows", rows);
    }
    Py_XDECREF(estimates);
    Py_XDECREF(rows);
    return NULL;
}

static PyObject *of_report(const skv_eval_report *report)
{
    PyObject *tasks = PyList_New(0);
    for (size_t i = 0; tasks && i < report->n_tasks; i++) {
        PyObject *task = of_task(&report->tasks[i]);
        if (!task || PyList_Append(tasks, task) < 0) Py_CLEAR(tasks);
        Py_XDECREF(task);
    }
    return tasks;
}

/* (engine, vocab, path, options, lengths as size_t, reference or None, its path or None, progress)
 */
static PyObject *evaluate(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *box, *vocab_box, *given, *lengths_array, *reference, *progress;
    const char *path;
    skv_eval_options options = skv_eval_options_default();
    if (!PyArg_ParseTuple(args, "OOsO!OOzO", &box, &vocab_box, &path, &PyDict_Type, &given,
                          &lengths_array, &reference, &options.reference_path, &progress))
        return NULL;
    skv_engine *engine = skvpy_unbox(box, "engine");
    const skv_vocab *vocab = engine ? skvpy_unbox(vocab_box, "vocab") : NULL;
    if (!vocab || !skvpy_fill(option_fields, &options, given)) return NULL;
    if (reference != Py_None && !(options.reference = skvpy_unbox(reference, "engine")))
        return NULL;
    Py_buffer lengths;
    if (!skvpy_array(lengths_array, false, sizeof(size_t), &lengths)) return NULL;
    options.lengths = lengths.buf;
    options.n_lengths = skvpy_length(&lengths);
    asking a = {engine, progress};
    options.progress = on_batch;
    options.user = &a;
    skv_eval_report *report = NULL;
    skv_error err = {0};
    skv_status status;
    Py_BEGIN_ALLOW_THREADS status = skv_eval_run(engine, vocab, path, &options, &report, &err);
    Py_END_ALLOW_THREADS PyBuffer_Release(&lengths);
    PyObject *out = NULL;
    if (status != SKV_OK || PyErr_Occurred()) {
        skvpy_fail(status, &err);
    } else {
        out = of_report(report);
    }
    skv_eval_report_free(report);
    return out;
}

PyMethodDef skvpy_eval_methods[] = {{"evaluate", evaluate, METH_VARARGS, NULL}, {0}};
