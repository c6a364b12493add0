/* swiftkv render: applies a chat template to a conversation. */
#include <string.h>

#include "runtime.h"

/* Puts one file's JSON under `key` of the variables; a document of another kind is an error. */
static int add_file(json_t *vars, const char *key, const char *path, json_type type)
{
    json_t *value = NULL;
    const int status = cli_read_json(path, &value);
    if (status != CLI_DONE) return status;
    if (json_typeof(value) != type) {
        json_decref(value);
        return cli_fail("%s: not a JSON array", path);
    }
    json_object_set_new(vars, key, value);
    return CLI_DONE;
}

static int merge_object(json_t *vars, const char *path, json_t *value)
{
    if (!json_is_object(value)) return cli_fail("%s: not a JSON object", path);
    json_object_update(vars, value);
    return CLI_DONE;
}

static int add_messages(json_t *vars, const char *path)
{
    json_t *value = NULL;
    int status = cli_read_json(path, &value);
    if (status != CLI_DONE) return status;
    if (json_is_array(value)) {
        json_object_set(vars, "messages", value);
    } else if (!json_is_array(json_object_get(value, "messages"))) {
        status =
            cli_fail("%s: neither a JSON array nor an object with the array \"messages\"", path);
    } else {
        status = merge_object(vars, path, value);
    }
    json_decref(value);
    return status;
}

static int add_vars(json_t *vars, const char *path)
{
    json_t *value = NULL;
    int status = cli_read_json(path, &value);
    if (status != CLI_DONE) return status;
    status = merge_object(vars, path, value);
    json_decref(value);
    return status;
}

static int collect(const cli_options *o, json_t *vars)
{
    int status = add_messages(vars, o->messages_file);
    if (status == CLI_DONE && o->vars_file) status = add_vars(vars, o->vars_file);
    if (status == CLI_DONE && o->tools_file) {
        status = add_file(vars, "tools", o->tools_file, JSON_ARRAY);
    }
    if (o->add_generation_prompt) {
        json_object_set_new(vars, "add_generation_prompt", json_true());
    } else if (!json_object_get(vars, "add_generation_prompt")) {
        json_object_set_new(vars, "add_generation_prompt", json_false());
    }
    return status;
}

static bool has_suffix(const char *text, const char *suffix)
{
    const size_t n = strlen(text), n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(text + n - n_suffix, suffix) == 0;
}

/* A model's own template, or the file itself. */
static int open_template(const cli_options *o, skv_vocab **vocab, cli_bytes *out)
{
    const char *path = o->operands[0];
    if (has_suffix(path, ".jinja") || has_suffix(path, ".jinja2") || has_suffix(path, ".j2")) {
        return cli_read_file(path, out);
    }
    skv_error err = {0};
    const int status = cli_check(skv_vocab_open(path, vocab, &err), &err);
    if (status != CLI_DONE) return status;
    const char *text = skv_vocab_chat_template(*vocab);
    if (!text) return cli_fail("%s: the model has no chat template", path);
    out->n = strlen(text);
    out->data = cli_alloc(out->n + 1, 1);
    memcpy(out->data, text, out->n);
    return CLI_DONE;
}

int cli_run_render(const cli_options *options)
{
    skv_vocab *vocab = NULL;
    cli_bytes template_text = {0}, text = {0};
    json_t *vars = json_object();
    int status = open_template(options, &vocab, &template_text);
    if (status == CLI_DONE) status = collect(options, vars);
    if (status == CLI_DONE) status = cli_render(&template_text, vars, vocab, &text);
    if (status == CLI_DONE) fwrite(text.data, 1, text.n, stdout);
    json_decref(vars);
    cli_bytes_release(&text);
    cli_bytes_release(&template_text);
    skv_vocab_close(vocab);
    return status;
}
