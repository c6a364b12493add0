/* Texts, whose perplexity is asked for: windows without overlap, as `swiftkv score` has them. */
#include <string.h>

#include "base/size.h"
#include "engine/vocab_impl.h"
#include "eval/format_impl.h"

skv_status skv_eval_text_tokens(const skv_eval_prompter *p, skv_eval_text text, skv_ids *ids,
                                int32_t *begin, skv_error *err)
{
    const skv_tokenizer *t = p->vocab->tokenizer;
    skv_ids first = {0};
    skv_status status =
        skv_tokenizer_encode(t, "", 0, (skv_encode_options){true, false}, &first, err);
    const int32_t bos = skv_tokenizer_bos(t);
    *begin = status == SKV_OK && first.n > 0 && first.data[0] == bos ? bos : -1;
    skv_ids_release(&first);
    SKV_TRY(status);
    return skv_tokenizer_encode(t, text.n ? text.at : "", text.n,
                                (skv_encode_options){false, false}, ids, err);
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
    const skv_eval_text text = skv_eval_text_of(skv_format_text(r, "text"));
    skv_ids ids = {0};
    int32_t begin = -1;
    if (r->status == SKV_OK) {
        skv_format_note(r, skv_eval_text_tokens(m->prompter, text, &ids, &begin, r->err));
    }
    const size_t step = skv_eval_window_tokens(m->window, begin);
    for (size_t at = 0; at < ids.n && r->status == SKV_OK; at += step) {
        const size_t n = skv_min_size(step, ids.n - at);
        const double share = (double)n / (double)ids.n;
        const skv_eval_window w = {at, n, begin, share * (double)text.n, m->scored};
        skv_format_note(r, skv_eval_text_window(&ids, w, e, r->err));
    }
    skv_ids_release(&ids);
}
