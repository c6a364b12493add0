/* Beginnings of self-written documents: see self_begin.h. */
#include "engine/self_begin.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/json_doc.h"

enum { VARS_BYTES_MAX = SKV_SELF_BEGIN_BYTES_MAX + (1 << 16) };

/* The line that a byte lies in. */
static skv_text_piece line_at(const skv_self_begin *b, size_t byte)
{
    size_t at = byte, end = byte;
    while (at > 0 && b->lines[at - 1] != '\n') at--;
    while (end < b->n_bytes && b->lines[end] != '\n') end++;
    return (skv_text_piece){b->lines + at, end - at};
}

static bool is_blank(skv_text_piece line)
{
    size_t n = 0;
    while (n < line.n && strchr(" \t\r", line.text[n])) n++;
    return n == line.n;
}

/* Release *out with json_decref. */
static skv_status read_line(const skv_self_begin *b, skv_text_piece line, json_t **out,
                            skv_error *err)
{
    skv_status status =
        skv_json_load(line.text, line.n, SKV_SELF_BEGIN_BYTES_MAX, b->path, out, err);
    if (status != SKV_OK) return status;
    const bool talks = json_is_array(json_object_get(*out, "messages"));
    if (talks && !skv_vocab_chat_template(b->vocab)) {
        status = skv_fail(err, SKV_UNSUPPORTED, "%s: messages, and the model has no chat template",
                          b->path);
    } else if (!talks && !json_is_string(json_object_get(*out, "text"))) {
        status = skv_fail(err, SKV_FORMAT, "%s: the line at byte %zu has neither text nor messages",
                          b->path, (size_t)(line.text - b->lines));
    }
    if (status != SKV_OK) json_decref(*out);
    return status;
}

static skv_status check_lines(const skv_self_begin *b, skv_error *err)
{
    for (size_t at = 0; at < b->n_bytes;) {
        const skv_text_piece line = line_at(b, at);
        json_t *object;
        at += line.n + 1;
        if (is_blank(line)) continue;
        SKV_TRY(read_line(b, line, &object, err));
        json_decref(object);
    }
    return SKV_OK;
}

skv_status skv_self_begin_open(const char *path, const skv_vocab *vocab, skv_self_begin *out,
                               skv_error *err)
{
    static const char ending[] = ".jsonl";
    *out = (skv_self_begin){.path = path, .vocab = vocab};
    if (!path) return SKV_OK;
    const size_t n = strlen(path), n_ending = sizeof ending - 1;
    out->is_json = n > n_ending && strcmp(path + n - n_ending, ending) == 0;
    SKV_REQUIRE(vocab, err, SKV_UNSUPPORTED, "%s: this model has no tokenizer", path);
    SKV_TRY(skv_file_read(path, SKV_SELF_BEGIN_BYTES_MAX, &out->lines, &out->n_bytes, err));
    skv_status status = out->n_bytes > 0 ? SKV_OK : skv_fail(err, SKV_FORMAT, "%s: empty", path);
    if (status == SKV_OK && out->is_json) status = check_lines(out, err);
    if (status != SKV_OK) skv_self_begin_release(out);
    return status;
}

void skv_self_begin_release(skv_self_begin *begin)
{
    skv_free(begin->lines);
    *begin = (skv_self_begin){.path = NULL};
}

static skv_status encode_text(const skv_self_begin *b, skv_text_piece text, size_t most,
                              int32_t **ids, size_t *n_ids, skv_error *err)
{
    SKV_TRY(skv_vocab_encode(b->vocab, text, (skv_encode_options){.parse_special = false}, ids,
                             n_ids, err));
    if (*n_ids > most) *n_ids = most;
    return SKV_OK;
}

/* The template reads the members of the line. */
static skv_status encode_talk(const skv_self_begin *b, json_t *object, int32_t **ids, size_t *n_ids,
                              skv_error *err)
{
    const char *source = skv_vocab_chat_template(b->vocab);
    skv_text_marks data = {0};
    skv_text_piece text = {0};
    char *rendered = NULL;
    skv_buf vars;
    skv_buf_init(&vars, VARS_BYTES_MAX);
    const bool made = json_object_set_new(object, "add_generation_prompt", json_true()) == 0 &&
                      skv_json_print(&vars, object);
    skv_status status =
        made ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory for a conversation", b->path);
    const skv_render_input input = {.template_text = {source, strlen(source)},
                                    .vars = {vars.data, vars.size},
                                    .vocab = b->vocab};
    if (made) status = skv_render_marked(&input, &rendered, &text.n, &data, err);
    text.text = rendered;
    const skv_encode_options options = {.parse_special = true, .data = &data};
    if (status == SKV_OK) status = skv_vocab_encode(b->vocab, text, options, ids, n_ids, err);
    if (made && status != SKV_OK) status = skv_fail_within(err, status, b->path);
    skv_text_free(rendered);
    skv_text_free(data.at);
    skv_buf_release(&vars);
    return status;
}

skv_status skv_self_begin_draw(const skv_self_begin *begin, skv_rng *rng, size_t most,
                               int32_t **ids, size_t *n_ids, skv_error *err)
{
    *ids = NULL;
    *n_ids = 0;
    if (!begin->lines) return SKV_OK;
    /* A random byte, so long lines come oftener. */
    const skv_text_piece line = line_at(begin, (size_t)skv_rng_below(rng, begin->n_bytes));
    if (!begin->is_json) return encode_text(begin, line, most, ids, n_ids, err);
    if (is_blank(line)) return SKV_OK;
    json_t *object;
    SKV_TRY(read_line(begin, line, &object, err));
    const json_t *text = json_object_get(object, "text");
    const skv_status status =
        json_is_array(json_object_get(object, "messages"))
            ? encode_talk(begin, object, ids, n_ids, err)
            : encode_text(begin,
                          (skv_text_piece){json_string_value(text), json_string_length(text)}, most,
                          ids, n_ids, err);
    json_decref(object);
    return status;
}
