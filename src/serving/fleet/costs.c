/* Costs of steps: see costs.h. */
#include "costs.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/json_doc.h"

enum { FILE_BYTES_MAX = 1 << 20 };
static const double MS_MAX = 1e7;

/* "[[rows, ms], ...]" with rising rows. */
static void read_curve(skv_json_reader *r, const char *key, fleet_curve *out)
{
    const json_t *list = skv_json_get(r, key);
    out->n = json_array_size(list);
    bool good = out->n >= 1 && out->n <= FLEET_POINTS_MAX;
    for (size_t i = 0; good && i < out->n; i++) {
        const json_t *point = json_array_get(list, i);
        out->rows[i] = json_number_value(json_array_get(point, 0));
        out->ms[i] = json_number_value(json_array_get(point, 1));
        good = out->rows[i] >= 1 && (i == 0 || out->rows[i] > out->rows[i - 1]) && out->ms[i] > 0 &&
               out->ms[i] < MS_MAX;
    }
    if (!good) skv_json_refuse(r, key, list, "pairs [rows, milliseconds] with rising rows");
}

static double read_number(skv_json_reader *r, const char *key)
{
    const double value = skv_json_double(r, key, -1);
    if (value < 0) skv_json_refuse(r, key, skv_json_get(r, key), "a number from 0 on");
    return value;
}

bool fleet_costs_read(const char *path, fleet_costs *out, char *error)
{
    skv_error err = {0};
    char *text = NULL;
    size_t n = 0;
    json_t *json = NULL;
    *out = (fleet_costs){0};
    skv_status status = skv_file_read(path, FILE_BYTES_MAX, &text, &n, &err);
    if (status == SKV_OK) status = skv_json_load(text, n, FILE_BYTES_MAX, path, &json, &err);
    if (status == SKV_OK) {
        skv_json_reader r = {.object = json, .name = path, .err = &err};
        read_curve(&r, "prompt_ms", &out->prompt);
        read_curve(&r, "answer_ms", &out->answer);
        out->prompt_context_us = read_number(&r, "prompt_context_us");
        out->answer_context_us = read_number(&r, "answer_context_us");
        out->kv_bytes_per_token = read_number(&r, "kv_bytes_per_token");
        out->weight_bytes = read_number(&r, "weight_bytes");
        out->step_tokens = skv_json_size(&r, "step_tokens", 0, 1 << 20);
        if (out->step_tokens == 0) skv_json_refuse(&r, "step_tokens", NULL, "a number above 0");
        status = r.status;
    }
    json_decref(json);
    skv_free(text);
    if (status != SKV_OK) (void)snprintf(error, LOAD_ERROR_MAX, "%s", err.text);
    return status == SKV_OK;
}

/* The last line goes on beyond the last point; no rows take no time. */
static double curve_ms(const fleet_curve *c, double rows)
{
    if (rows <= 0) return 0;
    if (rows <= c->rows[0] || c->n == 1) return c->ms[0] * (c->n == 1 ? rows / c->rows[0] : 1);
    size_t i = 1;
    while (i + 1 < c->n && rows > c->rows[i]) i++;
    const double rise = (c->ms[i] - c->ms[i - 1]) / (c->rows[i] - c->rows[i - 1]);
    return c->ms[i - 1] + rise * (rows - c->rows[i - 1]);
}

/* All rows run the layers that prompts run; the further work of answers is theirs alone. */
double fleet_step_ms(const fleet_costs *c, const fleet_step *step)
{
    const double deep = curve_ms(&c->answer, step->n_answer) - curve_ms(&c->prompt, step->n_answer);
    return curve_ms(&c->prompt, step->n_prompt + step->n_answer) + (deep > 0 ? deep : 0) +
           c->prompt_context_us * 1e-6 * step->prompt_reads +
           c->answer_context_us * 1e-6 * step->answer_reads;
}
