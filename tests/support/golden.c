/* Reading golden files: see golden.h. */
#include "golden.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int32_t *read_ints(const json_t *array, size_t *n)
{
    *n = json_array_size(array);
    int32_t *out = calloc(*n + 1, sizeof *out);
    for (size_t i = 0; out && i < *n; i++) {
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return out;
}

static golden_result read_result(const json_t *object)
{
    golden_result r = {0};
    if (!json_is_object(object)) return r;
    const json_t *logprobs = json_object_get(object, "logprobs");
    size_t n = json_array_size(logprobs), unused;
    r.logprobs = calloc(n + 1, sizeof *r.logprobs);
    for (size_t i = 0; r.logprobs && i < n; i++) {
        const json_t *value = json_array_get(logprobs, i);
        r.logprobs[i] = json_is_null(value) ? (double)NAN : json_number_value(value);
    }
    r.argmax = read_ints(json_object_get(object, "argmax"), &unused);
    r.greedy = read_ints(json_object_get(object, "greedy"), &r.n_greedy);
    return r;
}

static int read_golden(const char *folder, const char *name, golden *out)
{
    char path[1024];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/%s/golden.json", folder, name);
    json_t *root = json_load_file(path, 0, NULL);
    if (!root) return 0;
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    (void)snprintf(out->path, sizeof out->path, "%s/%s/model.gguf", folder, name);
    if (stat(out->path, &info) != 0) {
        (void)snprintf(out->path, sizeof out->path, "%s/%s", folder, name);
    }
    out->is_swiftkv = !!strstr(name, "swiftkv");
    const json_t *cases = json_object_get(root, "cases");
    out->n_cases = json_array_size(cases);
    out->cases = calloc(out->n_cases + 1, sizeof *out->cases);
    for (size_t i = 0; out->cases && i < out->n_cases; i++) {
        const json_t *item = json_array_get(cases, i);
        golden_case *c = &out->cases[i];
        c->ids = read_ints(json_object_get(item, "ids"), &c->n);
        c->own = read_result(item);
        c->teacher = read_result(json_object_get(item, "teacher"));
    }
    json_decref(root);
    return 1;
}

golden *golden_load_all(size_t *n)
{
    struct dirent **entries;
    const char *folder = SKV_TEST_DATA "/models";
    int n_entries = scandir(folder, &entries, NULL, alphasort);
    golden *all = calloc(n_entries > 0 ? (size_t)n_entries : 1, sizeof *all);
    *n = 0;
    for (int i = 0; i < n_entries; i++) {
        if (entries[i]->d_name[0] != '.')
            *n += (size_t)read_golden(folder, entries[i]->d_name, &all[*n]);
        free(entries[i]);
    }
    if (n_entries >= 0) free(entries);
    return all;
}

static void free_result(golden_result *r)
{
    free(r->logprobs);
    free(r->argmax);
    free(r->greedy);
}

void golden_free_all(golden *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < all[i].n_cases; j++) {
            free(all[i].cases[j].ids);
            free_result(&all[i].cases[j].own);
            free_result(&all[i].cases[j].teacher);
        }
        free(all[i].cases);
    }
    free(all);
}
