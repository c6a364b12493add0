/* Texts to tokens: see prompt.h. */
#include "eval/prompt.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "language/vocab_impl.h"

enum {
    PRIMER_MAX = 1 << 24, /* bytes */
    SPARE_TOKENS = 16     /* an answer may have more tokens than the right one */
};
#define TEXT_MAX ((size_t)1 << 28)

skv_status skv_eval_prompter_init(skv_eval_prompter *p, const skv_vocab *vocab, size_t n_vocab,
                                  const skv_eval_options *options, skv_error *err)
{
    *p = (skv_eval_prompter){.vocab = vocab, .begin = skv_vocab_bos(vocab)};
    if (p->begin < 0) p->begin = skv_vocab_eos(vocab);
    skv_error why = {.status = SKV_OK};
    skv_status status = skv_data_writer_init(&p->writer, vocab->tokenizer, n_vocab, &why);
    if (status == SKV_MEMORY) return skv_fail(err, status, "%s", why.text);
    if (status != SKV_OK) { /* texts can be written all the same */
        p->writer = (skv_data_writer){.tokenizer = vocab->tokenizer, .vocab = n_vocab};
    }
    if (status != SKV_OK && !options->no_template) p->why = why;
    p->templated = p->writer.chat && !options->no_template;
    status = SKV_OK;
    if (options->primer) {
        status = skv_file_read(options->primer, PRIMER_MAX, &p->primer, &p->n_primer, err);
    }
    if (status != SKV_OK) skv_eval_prompter_release(p);
    return status;
}

void skv_eval_prompter_release(skv_eval_prompter *p)
{
    skv_data_writer_release(&p->writer);
    skv_free(p->primer);
    *p = (skv_eval_prompter){.vocab = NULL};
}

skv_eval_text skv_eval_text_of(const char *terminated)
{
    return (skv_eval_text){terminated, strlen(terminated)};
}

skv_eval_text skv_eval_text_trim(skv_eval_text text)
{
    while (text.n > 0 && strchr(" \t\r\n", text.at[text.n - 1])) text.n--;
    return text;
}

/* ---- likelihood ---- */

static skv_status encode(const skv_eval_prompter *p, const char *text, size_t n, skv_ids *out,
                         skv_error *err)
{
    const skv_encode_options options = {.add_special = true, .parse_special = false};
    SKV_TRY(skv_tokenizer_encode(p->vocab->tokenizer, n ? text : "", n, options, out, err));
    return SKV_OK;
}

/* `whole` is the context (n_context bytes of it) and its continuation. */
static skv_status split(const skv_eval_prompter *p, const skv_buf *whole, size_t n_context,
                        skv_eval_request *r, skv_error *err)
{
    skv_ids context = {0};
    skv_status status = encode(p, whole->data, n_context, &context, err);
    if (status == SKV_OK && context.n == 0 && p->begin >= 0) {
        status = skv_ids_push(&r->ids, p->begin, err);
        if (status == SKV_OK) status = skv_ids_push(&context, p->begin, err);
    }
    if (status == SKV_OK) status = encode(p, whole->data, whole->size, &r->ids, err);
    r->n_context = skv_max_size(1, skv_min_size(context.n, r->ids.n));
    skv_ids_release(&context);
    return status;
}

skv_status skv_eval_pair(const skv_eval_prompter *p, skv_eval_text context,
                         skv_eval_text continuation, skv_eval_example *e, skv_error *err)
{
    skv_eval_request *r = skv_eval_request_new(e, err);
    if (!r) return SKV_MEMORY;
    const bool spaced = continuation.n > 0 && continuation.at[0] == ' ';
    r->bytes = (double)(continuation.n - spaced);
    skv_buf whole;
    skv_buf_init(&whole, TEXT_MAX);
    if (p->primer) (void)skv_buf_append(&whole, p->primer, p->n_primer);
    (void)skv_buf_append(&whole, context.at, context.n);
    const skv_eval_text before = {whole.data, whole.size};
    const size_t n_context = skv_eval_text_trim(before).n;
    skv_status status = skv_buf_append(&whole, continuation.at, continuation.n)
                            ? split(p, &whole, n_context, r, err)
                            : skv_fail(err, SKV_MEMORY, "no memory for a prompt");
    skv_buf_release(&whole);
    return status;
}

/* ---- questions ---- */

typedef struct piece_plan {
    skv_eval_text text;
    skv_piece_role role;
    bool loss;
    bool joins; /* tokenized together with the piece before */
} piece_plan;

/* Writes a document of these pieces, with the answer marked as learnt. */
static skv_status write_pieces(const skv_eval_prompter *p, const piece_plan *plan, size_t n,
                               skv_data_tokens *out, skv_error *err)
{
    skv_piece pieces[8];
    skv_document doc;
    skv_document_init(&doc);
    doc.text.max = TEXT_MAX;
    for (size_t i = 0; i < n; i++) {
        if (plan[i].joins) {
            pieces[doc.n_pieces - 1].n += plan[i].text.n;
        } else {
            pieces[doc.n_pieces++] = (skv_piece){.at = doc.text.size,
                                                 .n = plan[i].text.n,
                                                 .role = plan[i].role,
                                                 .loss = plan[i].loss};
        }
        (void)skv_buf_append(&doc.text, plan[i].text.at, plan[i].text.n);
    }
    doc.pieces = pieces;
    skv_status status = doc.text.failed ? skv_fail(err, SKV_MEMORY, "no memory for a prompt")
                                        : skv_data_put_document(&p->writer, &doc, out, err);
    doc.pieces = NULL; /* not on the heap */
    skv_document_release(&doc);
    return status;
}

static skv_status write_question(const skv_eval_prompter *p, const skv_eval_question *q,
                                 skv_data_tokens *out, skv_error *err)
{
    skv_buf prompt;
    skv_buf_init(&prompt, TEXT_MAX);
    if (p->primer) (void)skv_buf_append(&prompt, p->primer, p->n_primer);
    (void)skv_buf_append(&prompt, q->prompt.at, q->prompt.n);
    const skv_eval_text all = {prompt.data, prompt.size};
    const piece_plan turns[] = {{all, SKV_PIECE_USER, false, false},
                                {q->answer, SKV_PIECE_ASSISTANT, true, false}};
    const piece_plan plain[] = {{all, SKV_PIECE_TEXT, false, false},
                                {skv_eval_text_of(q->cue), SKV_PIECE_TEXT, false, false},
                                {skv_eval_text_of(q->lead), SKV_PIECE_TEXT, true, false},
                                {q->answer, SKV_PIECE_TEXT, true, true}};
    skv_status status = prompt.failed  ? skv_fail(err, SKV_MEMORY, "no memory for a prompt")
                        : p->templated ? write_pieces(p, turns, 2, out, err)
                                       : write_pieces(p, plain, 4, out, err);
    skv_buf_release(&prompt);
    return status;
}

/* The request holds the tokens before the right answer. The right text ends with the last learnt
 * token, which ends the turn if there is a template. */
static skv_status keep(const skv_data_tokens *t, bool templated, skv_eval_example *e,
                       skv_eval_request *r, skv_error *err)
{
    size_t first = 0, last = t->ids.n;
    while (first < t->ids.n && !t->loss[first]) first++;
    while (last > first && !t->loss[last - 1]) last--;
    SKV_REQUIRE(first > 0 && last > first, err, SKV_FORMAT, "a prompt or an answer is empty");
    for (size_t i = 0; i < last; i++) {
        if (i < first) SKV_TRY(skv_ids_push(&r->ids, t->ids.data[i], err));
        SKV_TRY(skv_ids_push(&e->right, t->ids.data[i], err));
    }
    e->n_right_context = first;
    r->n_context = first;
    if (templated) r->stop_id = t->ids.data[last - 1];
    if (r->max_new == 0) r->max_new = last - first + SPARE_TOKENS;
    return SKV_OK;
}

skv_status skv_eval_ask(const skv_eval_prompter *p, const skv_eval_question *q, skv_eval_example *e,
                        skv_error *err)
{
    SKV_REQUIRE(p->why.status == SKV_OK, err, p->why.status, "%s; --no-template does without it",
                p->why.text);
    skv_eval_request *r = skv_eval_request_new(e, err);
    if (!r) return SKV_MEMORY;
    r->max_new = q->max_new;
    if (!p->templated) r->stop_text = q->stop_text;
    skv_data_tokens tokens = {.loss = NULL};
    skv_status status = write_question(p, q, &tokens, err);
    if (status == SKV_OK) status = keep(&tokens, p->templated, e, r, err);
    skv_data_tokens_release(&tokens);
    return status;
}
