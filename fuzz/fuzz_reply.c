/*
 * libFuzzer target: replies. The first byte chooses the format and the cuts; the same text cut
 * elsewhere must tell the same, and what is told of a whole call must be JSON.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fuzz.h"
#include "skv/reply.h"

enum { STORY_MAX = 1 << 20 };

typedef struct story {
    skv_buf text, args;
    int last;
} story;

static void require(bool ok)
{
    if (!ok) abort();
}

static void check_json(const skv_buf *args)
{
    json_error_t why;
    json_t *json = json_loadb(args->data, args->size, JSON_ALLOW_NUL, &why);
    /* The range of numbers, lone surrogates, UTF-8 and zero bytes are not the reader's business. */
    const enum json_error_code code = !json ? json_error_code(&why) : json_error_unknown;
    require(json_is_object(json) || code == json_error_numeric_overflow ||
            code == json_error_invalid_utf8 || code == json_error_invalid_syntax ||
            code == json_error_null_byte_in_key);
    if (!json && code == json_error_invalid_syntax) {
        require(strstr(why.text, "Unicode") || strstr(why.text, "real number"));
    }
    json_decref(json);
}

static void tell(void *user, const skv_reply_piece *piece)
{
    story *s = user;
    const bool joins = piece->kind == SKV_REPLY_TEXT || piece->kind == SKV_REPLY_THOUGHT ||
                       piece->kind == SKV_REPLY_ARGUMENTS;
    if (!joins || s->last != (int)piece->kind) skv_buf_byte(&s->text, (char)('0' + piece->kind));
    s->last = (int)piece->kind;
    skv_buf_append(&s->text, piece->text, piece->n);
    require(piece->n_rest <= piece->n);
    if (piece->kind == SKV_REPLY_CALL) skv_buf_clear(&s->args);
    if (piece->kind == SKV_REPLY_ARGUMENTS) skv_buf_append(&s->args, piece->text, piece->n);
    if (piece->kind == SKV_REPLY_CALL_END) check_json(&s->args);
}

static void run(const skv_reply_options *options, const char *text, size_t n, size_t step,
                story *out)
{
    skv_reply_options o = *options;
    skv_reply *reply = NULL;
    o.tell = tell;
    o.user = out;
    out->last = -1;
    skv_buf_init(&out->text, STORY_MAX);
    skv_buf_init(&out->args, STORY_MAX);
    require(skv_reply_create(&o, &reply, NULL) == SKV_OK);
    for (size_t from = 0; from < n; from += step) {
        const size_t left = n - from;
        require(skv_reply_push(reply, text + from, left < step ? left : step, NULL) == SKV_OK);
    }
    require(skv_reply_finish(reply, NULL) == SKV_OK);
    skv_reply_free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"f", "get_weather"};
    if (size < 1 || size > 4096) return 0;
    const skv_reply_options options = {
        .format = {(skv_call_syntax)(data[0] % SKV_CALLS_COUNT), (data[0] & 4) != 0},
        .in_thought = (data[0] & 8) != 0,
        .one_call = (data[0] & 16) != 0,
        .names = (data[0] & 32) != 0 ? names : NULL,
        .n_names = 2};
    story whole, cut;
    const char *text = (const char *)data + 1;
    run(&options, text, size - 1, size, &whole);
    for (size_t step = 1; step < 4; step++) {
        run(&options, text, size - 1, step, &cut);
        require(cut.text.size == whole.text.size);
        require(whole.text.size == 0 ||
                memcmp(cut.text.data, whole.text.data, whole.text.size) == 0);
        skv_buf_release(&cut.text);
        skv_buf_release(&cut.args);
    }
    skv_buf_release(&whole.text);
    skv_buf_release(&whole.args);
    return 0;
}
