/*
 * Renders chat templates and reads replies for test_reply_round.py: a line of JSON comes, one goes.
 *
 *     {"template": PATH, "vars": {...}}                     the prompt: {"text": ...} or {"error":
 * ...}
 *     {"template": PATH, "calls": [{"name", "arguments"}]}  calls in the template's form: {"text":
 * ...}
 *     {"template": PATH, "prompt": ..., "text": ..., "step": N, "schema": {...}}
 *                                                           what comes behind the prompt, pushed in
 *                                                           pieces of N bytes or more: {"pieces":
 * [[KIND, TEXT]]}
 *
 * Parameters of functions are those of the schema. "format" of every answer names the form of
 * calls.
 */
#define _GNU_SOURCE /* getline */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "skv/reply.h"
#include "skv/text.h"

enum { TEMPLATE_MAX = 1 << 20 };

static skv_text_piece text_of(const json_t *asked, const char *name)
{
    const json_t *value = json_object_get(asked, name);
    return (skv_text_piece){json_string_value(value), json_string_length(value)};
}

static void set_text(json_t *out, const char *name, const char *text, size_t n)
{
    (void)json_object_set_new(out, name, json_stringn(text, n));
}

static void render(const skv_text_piece *source, const json_t *vars, json_t *out)
{
    char *json = json_dumps(vars, JSON_COMPACT), *text = NULL;
    size_t n = 0;
    skv_error err = {0};
    const skv_render_input input = {.template_text = *source, .vars = {json, strlen(json)}};
    if (skv_render(&input, &text, &n, &err) == SKV_OK) {
        set_text(out, "text", text, n);
    } else {
        set_text(out, "error", err.text, strlen(err.text));
    }
    skv_text_free(text);
    free(json);
}

static void write_calls(skv_reply_format format, const json_t *calls, json_t *out)
{
    char *json = json_dumps(calls, JSON_COMPACT), *text = NULL;
    size_t n = 0;
    skv_error err = {0};
    if (skv_reply_write_calls(format, (skv_text_piece){json, strlen(json)}, (skv_text_piece){0},
                              &text, &n, &err) == SKV_OK) {
        set_text(out, "text", text, n);
    } else {
        set_text(out, "error", err.text, strlen(err.text));
    }
    skv_text_free(text);
    free(json);
}

static unsigned types(const void *functions, const char *function, size_t n_function,
                      const char *parameter, size_t n_parameter)
{
    (void)function;
    (void)n_function;
    const json_t *schema = functions;
    const json_t *property =
        json_object_getn(json_object_get(schema, "properties"), parameter, n_parameter);
    return property ? skv_reply_schema_types(schema, property, NULL) : 0;
}

/* Pieces of one kind in a row are one, however they came. */
static void tell(void *user, const skv_reply_piece *piece)
{
    static const char *const kinds[] = {"text", "thought", "call", "id", "arguments", "end", "bad"};
    json_t *pieces = user;
    const bool joins = piece->kind == SKV_REPLY_TEXT || piece->kind == SKV_REPLY_THOUGHT ||
                       piece->kind == SKV_REPLY_ARGUMENTS;
    json_t *last = json_array_get(pieces, json_array_size(pieces) - 1);
    const char *kind = json_string_value(json_array_get(last, 0));
    if (!joins || !kind || strcmp(kind, kinds[piece->kind]) != 0) {
        (void)json_array_append_new(pieces,
                                    json_pack("[ss%]", kinds[piece->kind], piece->text, piece->n));
        return;
    }
    const json_t *said = json_array_get(last, 1);
    const size_t n = json_string_length(said);
    char *joined = malloc(n + piece->n);
    if (!joined) return;
    memcpy(joined, json_string_value(said), n);
    memcpy(joined + n, piece->text, piece->n);
    (void)json_array_set_new(last, 1, json_stringn(joined, n + piece->n));
    free(joined);
}

static void read_text(skv_reply_format format, const json_t *asked, json_t *out)
{
    static const char *const names[] = {"f", "get_weather"};
    const skv_text_piece prompt = text_of(asked, "prompt"), text = text_of(asked, "text");
    const size_t step = (size_t)json_integer_value(json_object_get(asked, "step"));
    json_t *pieces = json_array();
    const skv_reply_options options = {.format = format,
                                       .in_thought =
                                           skv_reply_prompt_thinks(format, prompt.text, prompt.n),
                                       .names = names,
                                       .n_names = 2,
                                       .types = types,
                                       .functions = json_object_get(asked, "schema"),
                                       .tell = tell,
                                       .user = pieces};
    skv_reply *reply = NULL;
    skv_error err = {0};
    skv_status status = skv_reply_create(&options, &reply, &err);
    for (size_t i = 0, n = 0; status == SKV_OK && i < text.n; i += n) {
        n = text.n - i < step ? text.n - i : step;
        while (i + n < text.n && (text.text[i + n] & 0xc0) == 0x80) n++;
        status = skv_reply_push(reply, text.text + i, n, &err);
    }
    if (status == SKV_OK) status = skv_reply_finish(reply, &err);
    skv_reply_free(reply);
    if (status != SKV_OK) set_text(out, "error", err.text, strlen(err.text));
    (void)json_object_set_new(out, "pieces", pieces);
}

static void answer(const json_t *asked, json_t *out)
{
    const char *path = json_string_value(json_object_get(asked, "template"));
    const json_t *vars = json_object_get(asked, "vars"), *calls = json_object_get(asked, "calls");
    skv_text_piece source = {0};
    char *text = NULL;
    skv_error err = {0};
    if (!path || skv_file_read(path, TEMPLATE_MAX, &text, &source.n, &err) != SKV_OK) {
        set_text(out, "error", err.text, strlen(err.text));
        return;
    }
    source.text = text;
    const skv_reply_format format = skv_reply_format_of(source.text, source.n);
    (void)json_object_set_new(out, "format", json_string(skv_call_syntax_name(format.calls)));
    if (vars) {
        render(&source, vars, out);
    } else if (calls) {
        write_calls(format, calls, out);
    } else {
        read_text(format, asked, out);
    }
    skv_text_free(text);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        json_error_t why;
        json_t *asked = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &why), *out = json_object();
        if (asked) {
            answer(asked, out);
        } else {
            set_text(out, "error", why.text, strlen(why.text));
        }
        char *text = json_dumps(out, JSON_COMPACT);
        printf("%s\n", text ? text : "{}");
        fflush(stdout);
        free(text);
        json_decref(out);
        json_decref(asked);
    }
    free(line);
    return 0;
}
