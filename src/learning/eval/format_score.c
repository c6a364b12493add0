/* Formats that are judged by likelihood: choices, sentences, last words, texts. */
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "eval/format.h"
#include "language/vocab_impl.h"

enum { CHOICES_MAX = 1000, PROMPT_MAX = 1 << 26 };

/* The number of the right one among n. */
static size_t gold_at(skv_json_reader *r, size_t n)
{
    return skv_json_size_of(r, skv_json_get(r, "gold"), "gold", n > 0 ? n - 1 : 0);
}

/* Adds one choice, with a space between it and its context. */
static void add_choice(const skv_eval_maker *m, skv_json_reader *r, skv_eval_example *e,
                       skv_eval_text context, skv_eval_text choice)
{
    if (r->status != SKV_OK) return;
    skv_buf spaced;
    skv_buf_init(&spaced, PROMPT_MAX);
    if (context.n > 0) (void)skv_buf_byte(&spaced, ' ');
    (void)skv_buf_append(&spaced, choice.at, choice.n);
    const skv_eval_text continuation = {spaced.data, spaced.size};
    skv_record_note(r, spaced.failed
                           ? skv_fail(r->err, SKV_MEMORY, "no memory for a choice")
                           : skv_eval_pair(m->prompter, context, continuation, e, r->err));
    skv_buf_release(&spaced);
}

/* The right choice is also the text to compare with a reference on. */
static void mark_right(skv_json_reader *r, skv_eval_example *e, size_t gold)
{
    if (r->status != SKV_OK || gold >= e->n_requests) return;
    skv_eval_request *q = &e->requests[gold];
    q->is_true = true;
    e->n_right_context = q->n_context;
    for (size_t i = 0; i < q->ids.n; i++)
        skv_record_note(r, skv_ids_push(&e->right, q->ids.data[i], r->err));
}

/* "Question: ..." without an end that calls for the answer gets one. */
static void put_query(skv_buf *out, const char *query)
{
    const skv_eval_text text = skv_eval_text_trim(skv_eval_text_of(query));
    (void)skv_buf_append(out, text.at, text.n);
    const bool asks = strstr(query, "Question:");
    if (asks && text.n > 0 && text.at[text.n - 1] != ':') (void)skv_buf_text(out, "\nAnswer:");
}

void skv_format_make_choices(const skv_eval_maker *m, const skv_eval_format *format,
                             skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    const size_t n = skv_record_texts(r, "choices");
    const size_t gold = gold_at(r, n);
    skv_buf context;
    skv_buf_init(&context, PROMPT_MAX);
    put_query(&context, skv_record_text(r, "query"));
    if (context.failed) skv_record_wrong(r, "query", "a shorter text");
    for (size_t i = 0; i < n; i++) {
        const skv_eval_text before = {context.data, context.size};
        add_choice(m, r, e, before, skv_eval_text_trim(skv_record_nth(r, "choices", i)));
    }
    mark_right(r, e, gold);
    skv_buf_release(&context);
}

/* Winogrande and WSC: the beginnings differ; the common continuation alone is scored. */
void skv_format_make_partial(const skv_eval_maker *m, const skv_eval_format *format,
                             skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    const size_t n = skv_record_texts(r, "context_options");
    const size_t gold = gold_at(r, n);
    const skv_eval_text rest = skv_eval_text_of(skv_record_text(r, "continuation"));
    for (size_t i = 0; i < n; i++) {
        add_choice(m, r, e, skv_eval_text_trim(skv_record_nth(r, "context_options", i)), rest);
    }
    mark_right(r, e, gold);
}

/* BLiMP: the sentence that is English should be the likelier one. */
void skv_format_make_pair(const skv_eval_maker *m, const skv_eval_format *format,
                          skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    const skv_eval_text none = {"", 0};
    add_choice(m, r, e, none, skv_eval_text_of(skv_record_text(r, "sentence_good")));
    add_choice(m, r, e, none, skv_eval_text_of(skv_record_text(r, "sentence_bad")));
    mark_right(r, e, 0);
}

/* LAMBADA: the last word of a passage. */
void skv_format_make_word(const skv_eval_maker *m, const skv_eval_format *format,
                          skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    const skv_eval_text context =
        skv_eval_text_trim(skv_eval_text_of(skv_record_text(r, "context")));
    add_choice(m, r, e, context, skv_eval_text_of(skv_record_text(r, "continuation")));
    mark_right(r, e, 0);
}

/* MMLU, as its authors print it: letters are the choices. */
void skv_format_make_letters(const skv_eval_maker *m, const skv_eval_format *format,
                             skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    static const char letters[] = "ABCDEFGHIJ";
    skv_buf context;
    skv_buf_init(&context, PROMPT_MAX);
    if (m->subject[0]) {
        (void)skv_buf_printf(&context,
                             "The following are multiple choice questions (with answers) about "
                             "%s.\n\n",
                             m->subject);
    }
    const skv_eval_text question =
        skv_eval_text_trim(skv_eval_text_of(skv_record_text(r, "question")));
    (void)skv_buf_append(&context, question.at, question.n);
    size_t n = 0;
    for (char key[] = "choice0"; n + 1 < sizeof letters && skv_json_get(r, key); n++, key[6]++) {
        (void)skv_buf_printf(&context, "\n%c. %s", letters[n], skv_record_text(r, key));
    }
    (void)skv_buf_text(&context, "\nAnswer:");
    const char *answer = skv_record_text(r, "answer");
    const size_t gold = (size_t)(answer[0] - '0');
    if (context.failed) skv_record_wrong(r, "question", "a shorter text");
    if (answer[0] < '0' || answer[1] != 0 || gold >= n)
        skv_record_wrong(r, "answer", "the number of a choice");
    for (size_t i = 0; i < n; i++) {
        const skv_eval_text before = {context.data, context.size};
        add_choice(m, r, e, before, (skv_eval_text){letters + i, 1});
    }
    mark_right(r, e, gold);
    skv_buf_release(&context);
}

/* One of TruthfulQA's sets: answers with 1 for a true one and 0 for a false one. */
static void add_targets(const skv_eval_maker *m, skv_json_reader *r, skv_eval_example *e,
                        const char *key, skv_eval_text context)
{
    const json_t *targets = skv_json_get(r, key);
    const bool good = json_object_size(targets) >= 1 && json_object_size(targets) <= CHOICES_MAX;
    if (!good) skv_record_wrong(r, key, "1 to 1000 answers");
    json_t *object = json_deep_copy(targets); /* its iterator wants one that may be changed */
    for (void *at = json_object_iter(object); at && good; at = json_object_iter_next(object, at)) {
        const size_t n_before = e->n_requests;
        const json_t *label = json_object_iter_value(at);
        if (!json_is_integer(label)) skv_record_wrong(r, key, "a 0 or 1 for each answer");
        add_choice(m, r, e, context, skv_eval_text_of(json_object_iter_key(at)));
        if (r->status != SKV_OK || e->n_requests == n_before) break;
        skv_eval_request *q = &e->requests[n_before];
        q->is_true = json_integer_value(label) == 1;
        q->is_second_set = strcmp(key, "mc2_targets") == 0;
    }
    json_decref(object);
}

void skv_format_make_truthful(const skv_eval_maker *m, const skv_eval_format *format,
                              skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    skv_buf context;
    skv_buf_init(&context, PROMPT_MAX);
    (void)skv_buf_printf(&context, "Q: %s\nA:", skv_record_text(r, "question"));
    if (context.failed) skv_record_wrong(r, "question", "a shorter text");
    const skv_eval_text before = {context.data, context.size};
    add_targets(m, r, e, "mc1_targets", before);
    add_targets(m, r, e, "mc2_targets", before);
    size_t gold = 0;
    while (gold < e->n_requests && !e->requests[gold].is_true) gold++;
    mark_right(r, e, gold);
    skv_buf_release(&context);
}

/* ---- the perplexity of texts: windows without overlap, as `swiftkv score` has them ---- */

skv_status skv_eval_text_tokens(const skv_eval_prompter *p, skv_eval_text text, skv_ids *ids,
                                int32_t *begin, skv_error *err)
{
    const skv_tokenizer *t = p->vocab->tokenizer;
    skv_ids first = {0};
    skv_status status =
        skv_tokenizer_encode(t, "", 0, (skv_encode_options){.add_special = true}, &first, err);
    const int32_t bos = skv_tokenizer_bos(t);
    *begin = status == SKV_OK && first.n > 0 && first.data[0] == bos ? bos : -1;
    skv_ids_release(&first);
    SKV_TRY(status);
    return skv_tokenizer_encode(t, text.n ? text.at : "", text.n, (skv_encode_options){0}, ids,
                                err);
}

skv_status skv_eval_text_window(const skv_ids *ids, skv_eval_window w, skv_eval_example *e,
                                skv_error *err)
{
    skv_eval_request *q = skv_eval_request_new(e, err);
    if (!q) return SKV_MEMORY;
    if (w.begin >= 0) SKV_TRY(skv_ids_push(&q->ids, w.begin, err));
    for (size_t i = 0; i < w.n; i++) SKV_TRY(skv_ids_push(&q->ids, ids->data[w.at + i], err));
    q->n_context = 1;
    q->bytes = w.bytes;
    if (w.scored > 0 && w.scored < q->ids.n) {
        q->n_context = q->ids.n - w.scored;
        q->bytes *= (double)w.scored / (double)w.n;
    }
    if (e->n_requests > 1) return SKV_OK; /* a reference is compared on the first window */
    for (size_t i = 0; i < q->ids.n; i++) SKV_TRY(skv_ids_push(&e->right, q->ids.data[i], err));
    e->n_right_context = q->n_context;
    return SKV_OK;
}

size_t skv_eval_window_tokens(size_t window, int32_t begin)
{
    return begin >= 0 ? window - 1 : window;
}

void skv_format_make_text(const skv_eval_maker *m, const skv_eval_format *format,
                          skv_json_reader *r, skv_eval_example *e)
{
    (void)format;
    const skv_eval_text text = skv_eval_text_of(skv_record_text(r, "text"));
    skv_ids ids = {0};
    int32_t begin = -1;
    if (r->status == SKV_OK) {
        skv_record_note(r, skv_eval_text_tokens(m->prompter, text, &ids, &begin, r->err));
    }
    const size_t step = skv_eval_window_tokens(m->window, begin);
    for (size_t at = 0; at < ids.n && r->status == SKV_OK; at += step) {
        const size_t n = skv_min_size(step, ids.n - at);
        const double share = (double)n / (double)ids.n;
        const skv_eval_window w = {at, n, begin, share * (double)text.n, m->scored};
        skv_record_note(r, skv_eval_text_window(&ids, w, e, r->err));
    }
    skv_ids_release(&ids);
}
