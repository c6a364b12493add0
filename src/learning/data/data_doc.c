/* Documents as tokens: see data_doc.h. */
#include "data/data_doc.h"

#include <jansson.h>
#include <string.h>

#include "base/marks.h"
#include "base/mem.h"
#include "format/json_doc.h"

enum { LINE_MAX = 1 << 26 };
#define RENDER_MAX ((size_t)1 << 27)

/* ---- tokens ---- */

void skv_data_tokens_clear(skv_data_tokens *tokens)
{
    tokens->ids.n = 0;
}

void skv_data_tokens_release(skv_data_tokens *tokens)
{
    skv_ids_release(&tokens->ids);
    skv_free(tokens->loss);
    *tokens = (skv_data_tokens){.loss = NULL};
}

skv_status skv_data_mark(skv_data_tokens *t, size_t from, bool loss, skv_error *err)
{
    if (t->loss_capacity < t->ids.n) {
        uint8_t *marks = skv_realloc(t->loss, t->ids.capacity, 1);
        SKV_REQUIRE(marks, err, SKV_MEMORY, "data: no memory for %zu tokens", t->ids.n);
        t->loss = marks;
        t->loss_capacity = t->ids.capacity;
    }
    if (t->ids.n > from) memset(t->loss + from, loss, t->ids.n - from);
    return SKV_OK;
}

static skv_status put_as(const skv_data_writer *w, const char *text, size_t n,
                         skv_encode_options options, bool loss, skv_data_tokens *out,
                         skv_error *err)
{
    const size_t from = out->ids.n;
    if (n > 0) SKV_TRY(skv_tokenizer_encode(w->tokenizer, text, n, options, &out->ids, err));
    return skv_data_mark(out, from, loss, err);
}

static skv_status put(const skv_data_writer *w, const char *text, size_t n, bool special, bool loss,
                      skv_data_tokens *out, skv_error *err)
{
    return put_as(w, text, n, (skv_encode_options){.parse_special = special}, loss, out, err);
}

/* A conversation as its template writes it, and which bytes of it are data: in these, no special
 * token is read. */
typedef struct rendered {
    skv_buf text, marks;
} rendered;

static void rendered_init(rendered *r, size_t max)
{
    skv_buf_init(&r->text, max);
    skv_buf_init(&r->marks, max);
}

static void rendered_release(rendered *r)
{
    skv_buf_release(&r->text);
    skv_buf_release(&r->marks);
}

/* The bytes from..to. */
static skv_status put_part(const skv_data_writer *w, const rendered *r, size_t from, size_t to,
                           bool loss, skv_data_tokens *out, skv_error *err)
{
    const size_t *at = (const size_t *)(const void *)r->marks.data;
    const size_t n_all = r->marks.size / sizeof *at;
    const size_t first = skv_marks_before(at, n_all, from), end = skv_marks_before(at, n_all, to);
    skv_text_marks data = {.at = skv_alloc(end - first + 2, sizeof *at)};
    SKV_REQUIRE(data.at, err, SKV_MEMORY, "data: no memory for a conversation");
    if (first % 2 == 1) data.at[data.n++] = 0;
    for (size_t i = first; i < end; i++) data.at[data.n++] = at[i] - from;
    if (data.n % 2 == 1) data.at[data.n++] = to - from;
    const skv_encode_options options = {.parse_special = true, .data = &data};
    const skv_status status = put_as(w, r->text.data + from, to - from, options, loss, out, err);
    skv_free(data.at);
    return status;
}

static skv_status put_begin(const skv_data_writer *w, skv_data_tokens *out, skv_error *err)
{
    const int32_t bos = skv_tokenizer_bos(w->tokenizer);
    const size_t from = out->ids.n;
    if (bos >= 0) SKV_TRY(skv_ids_push(&out->ids, bos, err));
    return skv_data_mark(out, from, false, err);
}

/* ---- turns ---- */

static void set_special(const skv_tokenizer *t, int32_t id, char out[64])
{
    size_t n = 0;
    const char *text = id >= 0 ? skv_tokenizer_text(t, id, &n) : NULL;
    if (!text || n >= 64) n = 0;
    if (n > 0) memcpy(out, text, n);
    out[n] = 0;
}

static skv_status render(const skv_data_writer *w, const char *messages, bool generation,
                         rendered *out, skv_error *err)
{
    const skv_template_options options = {.marks = &out->marks};
    const skv_chat_input input = {.messages_json = messages,
                                  .bos_token = w->bos,
                                  .eos_token = w->eos,
                                  .add_generation_prompt = generation};
    return skv_chat_render(w->chat, &input, &options, &out->text, err);
}

/* Words that no template writes by itself. */
#define ASK_1 "Qzq1"
#define ASK_2 "Qzq2"
#define TELL_1 "Azq1"
#define TELL_2 "Azq2"
#define TURN(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
#define TURNS_1 TURN("user", ASK_1) ", " TURN("assistant", TELL_1)

/* Cuts the frame out of two rendered conversations; false when the template is not that regular. */
static bool cut_frame(skv_data_writer *w, const char *whole, const char *asked)
{
    const char *ask = strstr(whole, ASK_1), *tell = ask ? strstr(ask, TELL_1) : NULL;
    const char *again = tell ? strstr(tell, ASK_2) : NULL;
    const char *last = again ? strstr(again, TELL_2) : NULL;
    const char *prompt = strstr(asked, ASK_1);
    if (!last || !prompt) return false;
    const char *answer = ask + strlen(ASK_1);
    const char *generation = prompt + strlen(ASK_1); /* the text before an answer begins */
    const size_t n_generation = strlen(generation), n_before = (size_t)(tell - answer);
    if (n_generation > n_before || memcmp(answer, generation, n_generation) != 0) return false;
    const char *between = tell + strlen(TELL_1);
    (void)skv_buf_append(&w->head, whole, (size_t)(ask - whole));
    (void)skv_buf_append(&w->to_answer, answer, n_generation);
    (void)skv_buf_append(&w->answer_start, answer + n_generation, n_before - n_generation);
    (void)skv_buf_append(&w->to_question, between, (size_t)(again - between));
    (void)skv_buf_text(&w->tail, last + strlen(TELL_2));
    return true;
}

/* A model without a template answers on the next line. */
static void plain_frame(skv_data_writer *w)
{
    (void)skv_buf_text(&w->head, w->bos);
    (void)skv_buf_text(&w->to_answer, "\n");
    (void)skv_buf_text(&w->answer_start, "");
    (void)skv_buf_text(&w->to_question, "\n\n");
    (void)skv_buf_text(&w->tail, w->eos[0] ? w->eos : "\n");
}

static skv_status learn_frame(skv_data_writer *w, skv_error *err)
{
    rendered whole, asked;
    rendered_init(&whole, LINE_MAX);
    rendered_init(&asked, LINE_MAX);
    skv_status status =
        render(w, "[" TURNS_1 ", " TURN("user", ASK_2) ", " TURN("assistant", TELL_2) "]", false,
               &whole, err);
    if (status == SKV_OK) status = render(w, "[" TURN("user", ASK_1) "]", true, &asked, err);
    if (status == SKV_OK && !cut_frame(w, whole.text.data, asked.text.data)) {
        status = skv_fail(err, SKV_UNSUPPORTED,
                          "chat template: a conversation does not go on from its prompt");
    }
    rendered_release(&whole);
    rendered_release(&asked);
    return status;
}

skv_status skv_data_writer_init(skv_data_writer *w, const skv_tokenizer *tokenizer, size_t vocab,
                                skv_error *err)
{
    *w = (skv_data_writer){.tokenizer = tokenizer, .vocab = vocab};
    if (!tokenizer) return SKV_OK;
    skv_buf *const frame[] = {&w->head, &w->to_answer, &w->answer_start, &w->to_question, &w->tail};
    for (size_t i = 0; i < sizeof frame / sizeof frame[0]; i++) skv_buf_init(frame[i], LINE_MAX);
    set_special(tokenizer, skv_tokenizer_bos(tokenizer), w->bos);
    set_special(tokenizer, skv_tokenizer_eos(tokenizer), w->eos);
    const char *source = skv_tokenizer_chat_template(tokenizer);
    skv_status status = SKV_OK;
    if (source) {
        status = skv_template_parse(source, strlen(source), "chat template", NULL, &w->chat, err);
        if (status == SKV_OK) status = learn_frame(w, err);
    } else {
        plain_frame(w);
    }
    for (size_t i = 0; i < sizeof frame / sizeof frame[0] && status == SKV_OK; i++) {
        if (frame[i]->failed) status = skv_fail(err, SKV_MEMORY, "data: no memory for the turns");
    }
    if (status != SKV_OK) skv_data_writer_release(w);
    return status;
}

void skv_data_writer_release(skv_data_writer *w)
{
    skv_template_free(w->chat);
    skv_buf_release(&w->head);
    skv_buf_release(&w->to_answer);
    skv_buf_release(&w->answer_start);
    skv_buf_release(&w->to_question);
    skv_buf_release(&w->tail);
    *w = (skv_data_writer){.tokenizer = NULL};
}

/* ---- documents ---- */

skv_status skv_data_put_text(const skv_data_writer *w, const char *text, size_t n, bool begin,
                             skv_data_tokens *out, skv_error *err)
{
    if (begin) SKV_TRY(put_begin(w, out, err));
    return put(w, text, n, false, true, out, err);
}

/* Appends the text after an answer: its first token ends the turn, which the model has to learn. */
static skv_status put_after_answer(const skv_data_writer *w, const skv_buf *text,
                                   skv_data_tokens *out, skv_error *err)
{
    const size_t from = out->ids.n;
    SKV_TRY(put(w, text->data, text->size, true, false, out, err));
    if (out->ids.n > from) out->loss[from] = 1;
    return SKV_OK;
}

/* The space that the template puts before an answer is part of it. */
static skv_status put_answer(const skv_data_writer *w, const char *text, size_t n,
                             skv_data_tokens *out, skv_error *err)
{
    if (w->answer_start.size == 0) return put(w, text, n, false, true, out, err);
    skv_buf joined;
    skv_buf_init(&joined, LINE_MAX);
    (void)skv_buf_append(&joined, w->answer_start.data, w->answer_start.size);
    skv_status status = skv_buf_append(&joined, text, n)
                            ? put(w, joined.data, joined.size, false, true, out, err)
                            : skv_fail(err, SKV_MEMORY, "data: no memory for an answer");
    skv_buf_release(&joined);
    return status;
}

static skv_status put_turns(const skv_data_writer *w, const skv_document *doc, skv_data_tokens *out,
                            skv_error *err)
{
    SKV_TRY(put(w, w->head.data, w->head.size, true, false, out, err));
    for (size_t i = 0; i < doc->n_pieces; i++) {
        const skv_piece *piece = &doc->pieces[i];
        const char *text = doc->text.data + piece->at;
        if (piece->role == SKV_PIECE_USER) {
            SKV_TRY(put(w, text, piece->n, false, false, out, err));
            SKV_TRY(put(w, w->to_answer.data, w->to_answer.size, true, false, out, err));
        } else {
            const bool last = i + 1 == doc->n_pieces;
            SKV_TRY(put_answer(w, text, piece->n, out, err));
            SKV_TRY(put_after_answer(w, last ? &w->tail : &w->to_question, out, err));
        }
    }
    return SKV_OK;
}

skv_status skv_data_put_document(const skv_data_writer *w, const skv_document *doc,
                                 skv_data_tokens *out, skv_error *err)
{
    if (doc->n_pieces > 0 && doc->pieces[0].role != SKV_PIECE_TEXT) {
        return put_turns(w, doc, out, err);
    }
    SKV_TRY(put_begin(w, out, err));
    for (size_t i = 0; i < doc->n_pieces; i++) {
        const skv_piece *piece = &doc->pieces[i];
        SKV_TRY(put(w, doc->text.data + piece->at, piece->n, false, piece->loss, out, err));
    }
    return SKV_OK;
}

/* ---- lines of JSON ---- */

/* Renders the first n messages. */
static skv_status render_first(const skv_data_writer *w, const json_t *messages, size_t n,
                               bool generation, rendered *out, skv_error *err)
{
    json_t *some = json_array();
    bool made = some;
    for (size_t i = 0; i < n && made; i++) {
        made = json_array_append(some, json_array_get(messages, i)) == 0;
    }
    skv_buf text;
    skv_buf_init(&text, RENDER_MAX);
    skv_status status = made && skv_json_print(&text, some)
                            ? render(w, text.data, generation, out, err)
                            : skv_fail(err, SKV_MEMORY, "data: no memory for a conversation");
    skv_buf_release(&text);
    json_decref(some);
    return status;
}

/* A template may write a turn differently once others follow it (leaving thoughts out of earlier
 * answers): then the answer has no single place. */
static bool begins_with(const rendered *whole, const rendered *part)
{
    const skv_buf *all = &whole->text, *some = &part->text;
    return some->size <= all->size &&
           (some->size == 0 || memcmp(all->data, some->data, some->size) == 0);
}

/* Appends the tokens of the answer in message i, and of the text before it since `*at`. */
static skv_status put_message(const skv_data_writer *w, const json_t *messages, size_t i,
                              const rendered *whole, size_t *at, skv_data_tokens *out,
                              skv_error *err)
{
    rendered before, after;
    rendered_init(&before, RENDER_MAX);
    rendered_init(&after, RENDER_MAX);
    skv_status status = render_first(w, messages, i, true, &before, err);
    if (status == SKV_OK) status = render_first(w, messages, i + 1, false, &after, err);
    if (status == SKV_OK && (!begins_with(whole, &before) || !begins_with(whole, &after) ||
                             before.text.size < *at || after.text.size < before.text.size)) {
        status =
            skv_fail(err, SKV_UNSUPPORTED,
                     "message %zu: the chat template writes it differently once others follow", i);
    }
    if (status == SKV_OK) status = put_part(w, whole, *at, before.text.size, false, out, err);
    if (status == SKV_OK) {
        status = put_part(w, whole, before.text.size, after.text.size, true, out, err);
    }
    *at = after.text.size;
    rendered_release(&before);
    rendered_release(&after);
    return status;
}

static skv_status put_messages(const skv_data_writer *w, const json_t *messages,
                               skv_data_tokens *out, skv_error *err)
{
    SKV_REQUIRE(w->chat, err, SKV_UNSUPPORTED, "messages, and the model has no chat template");
    rendered whole;
    rendered_init(&whole, RENDER_MAX);
    const size_t n = json_array_size(messages);
    size_t at = 0;
    skv_status status = render_first(w, messages, n, false, &whole, err);
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        if (!role || strcmp(role, "assistant") != 0) continue;
        status = put_message(w, messages, i, &whole, &at, out, err);
    }
    /* The text after the last answer teaches nothing. A conversation without an answer is
     * merely read: only the hidden loss has terms of it. */
    if (status == SKV_OK && at == 0) {
        status = put_part(w, &whole, 0, whole.text.size, false, out, err);
    }
    rendered_release(&whole);
    return status;
}

static skv_status put_segments(const skv_data_writer *w, const json_t *segments,
                               skv_data_tokens *out, skv_error *err)
{
    SKV_TRY(put_begin(w, out, err));
    for (size_t i = 0; i < json_array_size(segments); i++) {
        const json_t *segment = json_array_get(segments, i);
        const json_t *text = json_object_get(segment, "text");
        SKV_REQUIRE(json_is_string(text), err, SKV_FORMAT, "segment %zu: no text", i);
        SKV_TRY(put(w, json_string_value(text), json_string_length(text), false,
                    json_is_true(json_object_get(segment, "loss")), out, err));
    }
    return SKV_OK;
}

static skv_status put_pair(const skv_data_writer *w, const json_t *prompt, const json_t *answer,
                           skv_data_tokens *out, skv_error *err)
{
    SKV_TRY(put(w, w->head.data, w->head.size, true, false, out, err));
    SKV_TRY(put(w, json_string_value(prompt), json_string_length(prompt), false, false, out, err));
    SKV_TRY(put(w, w->to_answer.data, w->to_answer.size, true, false, out, err));
    SKV_TRY(put_answer(w, json_string_value(answer), json_string_length(answer), out, err));
    return put_after_answer(w, &w->tail, out, err);
}

static skv_status put_object(const skv_data_writer *w, const json_t *object, skv_data_tokens *out,
                             skv_error *err)
{
    const json_t *text = json_object_get(object, "text");
    if (json_is_string(text)) {
        SKV_TRY(skv_data_put_text(w, json_string_value(text), json_string_length(text), true, out,
                                  err));
        const int32_t eos = skv_tokenizer_eos(w->tokenizer);
        const size_t from = out->ids.n;
        if (eos >= 0) SKV_TRY(skv_ids_push(&out->ids, eos, err));
        return skv_data_mark(out, from, true, err);
    }
    const json_t *list = json_object_get(object, "messages");
    if (json_is_array(list)) return put_messages(w, list, out, err);
    list = json_object_get(object, "segments");
    if (json_is_array(list)) return put_segments(w, list, out, err);
    const json_t *prompt = json_object_get(object, "prompt");
    const json_t *answer = json_object_get(object, "answer");
    SKV_REQUIRE(json_is_string(prompt) && json_is_string(answer), err, SKV_FORMAT,
                "none of text, messages, segments, prompt with answer");
    return put_pair(w, prompt, answer, out, err);
}

skv_status skv_data_put_json(const skv_data_writer *w, const char *line, size_t n,
                             const char *where, skv_data_tokens *out, skv_error *err)
{
    json_t *object;
    SKV_TRY(skv_json_load(line, n, LINE_MAX, where, &object, err));
    skv_status status = put_object(w, object, out, err);
    json_decref(object);
    return status == SKV_OK ? status : skv_fail_within(err, status, where);
}
