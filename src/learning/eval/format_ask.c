/* Formats scored by the text that the model writes. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "eval/format.h"

enum { PROMPT_MAX = 1 << 26 };

static void ask(const skv_eval_maker *m, const skv_eval_format *format, skv_json_reader *r,
                skv_eval_example *e, skv_eval_text prompt, skv_eval_text answer)
{
    if (r->status != SKV_OK) return;
    const skv_eval_question q = {.prompt = prompt,
                                 .cue = format->cue,
                                 .lead = format->lead,
                                 .stop_text = format->stop_text,
                                 .answer = answer,
                                 .max_new = m->max_new ? m->max_new : format->max_new};
    skv_record_note(r, skv_eval_answer_add(e, answer.at, answer.n, r->err));
    if (r->status == SKV_OK) skv_record_note(r, skv_eval_ask(m->prompter, &q, e, r->err));
    if (e->length == 0 && e->n_requests > 0) e->length = e->requests[0].ids.n;
}

void skv_format_make_document(const skv_eval_maker *m, const skv_eval_format *format,
                              skv_json_reader *r, skv_eval_example *e)
{
    const skv_eval_text prompt = skv_eval_text_of(skv_record_text(r, "prompt"));
    e->depth = skv_json_double(r, "depth", e->depth);
    ask(m, format, r, e, prompt, skv_eval_text_of(skv_record_text(r, "answer")));
}

/* LongEval lines: the depth is the place of the line with the answer. */
void skv_format_make_register(const skv_eval_maker *m, const skv_eval_format *format,
                              skv_json_reader *r, skv_eval_example *e)
{
    char answer[32];
    snprintf(answer, sizeof answer, "%zu", skv_json_size(r, "expected_number", 0, SIZE_MAX / 2));
    const skv_eval_text prompt = skv_eval_text_trim(skv_eval_text_of(skv_record_text(r, "prompt")));
    const char *line = skv_json_text(r, "correct_line", NULL);
    const char *at = line && line[0] ? strstr(prompt.at, line) : NULL;
    if (at) e->depth = (double)(at - prompt.at) / (double)prompt.n;
    ask(m, format, r, e, prompt, skv_eval_text_of(answer));
}

/* Key-value retrieval: the pairs as one JSON object in their order. */
void skv_format_make_pairs(const skv_eval_maker *m, const skv_eval_format *format,
                           skv_json_reader *r, skv_eval_example *e)
{
    const json_t *pairs = skv_json_get(r, "ordered_kv_records");
    const char *key = skv_record_text(r, "key");
    const size_t n = json_array_size(pairs);
    if (n == 0) skv_record_wrong(r, "ordered_kv_records", "pairs");
    skv_buf prompt;
    skv_buf_init(&prompt, PROMPT_MAX);
    (void)skv_buf_text(&prompt, "A JSON object follows. Give the value of the key that is named "
                                "after it.\n\n{");
    for (size_t i = 0; i < n && r->status == SKV_OK; i++) {
        const json_t *pair = json_array_get(pairs, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));
        if (!name || !value) {
            skv_record_wrong(r, "ordered_kv_records", "pairs of texts");
            break;
        }
        if (strcmp(name, key) == 0 && n > 1) e->depth = (double)i / (double)(n - 1);
        (void)skv_buf_printf(&prompt, "%s\"%s\": \"%s\"", i > 0 ? ",\n " : "", name, value);
    }
    (void)skv_buf_printf(&prompt, "}\n\nKey: \"%s\"\nValue:", key);
    if (prompt.failed) skv_record_wrong(r, "ordered_kv_records", "fewer bytes");
    ask(m, format, r, e, (skv_eval_text){prompt.data, prompt.size},
        skv_eval_text_of(skv_record_text(r, "value")));
    skv_buf_release(&prompt);
}

/* TriviaQA: any of the aliases is right. */
void skv_format_make_aliases(const skv_eval_maker *m, const skv_eval_format *format,
                             skv_json_reader *r, skv_eval_example *e)
{
    const size_t n = skv_record_texts(r, "aliases");
    const skv_eval_text prompt =
        skv_eval_text_trim(skv_eval_text_of(skv_record_text(r, "context")));
    ask(m, format, r, e, prompt, skv_eval_text_of(skv_record_text(r, "answer")));
    for (size_t i = 0; i < n && r->status == SKV_OK; i++) {
        const skv_eval_text alias = skv_record_nth(r, "aliases", i);
        skv_record_note(r, skv_eval_answer_add(e, alias.at, alias.n, r->err));
    }
}

/* GSM8K: the right answer reasons and ends with "#### NUMBER". */
void skv_format_make_sum(const skv_eval_maker *m, const skv_eval_format *format, skv_json_reader *r,
                         skv_eval_example *e)
{
    skv_buf prompt;
    skv_buf_init(&prompt, PROMPT_MAX);
    (void)skv_buf_printf(&prompt, "Question: %s\nAnswer:", skv_record_text(r, "question"));
    if (prompt.failed) skv_record_wrong(r, "question", "a shorter text");
    ask(m, format, r, e, (skv_eval_text){prompt.data, prompt.size},
        skv_eval_text_of(skv_record_text(r, "answer")));
    skv_buf_release(&prompt);
}
