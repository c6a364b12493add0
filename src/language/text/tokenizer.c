/* Encoding: the chain that tokenizer_impl.h describes, and the small accessors. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"
#include "text/tokenizer_impl.h"

enum { TEXT_SHOWN = 24, LOOK_BYTES = 64 << 10 /* of text, between two looks at the budget */ };

/* One call of skv_tokenizer_encode. */
typedef struct encoder {
    const skv_tokenizer *t;
    skv_encode_options options;
    skv_ids *out;
    skv_norm_work norm;
    skv_pre_work pre;
    skv_word_work word;
    skv_buf spm; /* SentencePiece's normalised text */
    skv_text_marks data;
} encoder;

skv_status skv_tokenizer_create(const char *name, skv_tokenizer **out, skv_error *err)
{
    skv_tokenizer *t = skv_alloc_zero(1, sizeof *t);
    if (t) t->name = skv_strndup(name, strlen(name));
    if (!t || !t->name) {
        skv_free(t);
        return skv_fail(err, SKV_MEMORY, "%s: no memory for the tokenizer", name);
    }
    t->bos = t->eos = -1;
    t->bpe.unk = SKV_NO_TOKEN;
    t->unigram.unk = SKV_NO_TOKEN;
    *out = t;
    return SKV_OK;
}

void skv_tokenizer_free(skv_tokenizer *t)
{
    if (!t) return;
    skv_vocab_release(&t->vocab);
    skv_bpe_model_release(&t->bpe);
    skv_unigram_release(&t->unigram);
    skv_normalizer_release(&t->normalizer);
    skv_pretokenizer_release(&t->pretokenizer);
    skv_charsmap_release(&t->spm.charsmap);
    skv_trie_release(&t->spm.user_defined);
    skv_added_release(&t->added);
    for (size_t i = 0; i < t->decoder.n_steps; i++) {
        skv_free(t->decoder.steps[i].from);
        skv_free(t->decoder.steps[i].to);
    }
    skv_free(t->chat_template);
    skv_free(t->name);
    skv_free(t);
}

static skv_status on_word(void *arg, const char *word, size_t n, skv_error *err)
{
    encoder *e = arg;
    return skv_encode_word(&e->word, word, n, err);
}

/* A stretch of normalised SentencePiece text without user-defined pieces. */
static skv_status encode_spm_stretch(encoder *e, const char *text, size_t n, skv_error *err)
{
    if (e->t->model == SKV_MODEL_UNIGRAM) {
        return skv_unigram_encode(&e->t->unigram, (skv_text_piece){text, n}, e->options.budget,
                                  e->out, err);
    }
    return skv_encode_word(&e->word, text, n, err);
}

static skv_status encode_spm(encoder *e, const char *text, size_t n, skv_error *err)
{
    const skv_spm_rules *rules = &e->t->spm;
    skv_buf_clear(&e->spm);
    bool made = skv_spm_normalize(rules, text, n, &e->spm);
    if (!made && e->options.budget)
        SKV_TRY(skv_budget_check(e->options.budget, "normalisation", err));
    SKV_REQUIRE(!e->spm.full, err, SKV_RANGE, "normalisation: makes more than %zu bytes of %zu",
                e->spm.max, n);
    SKV_REQUIRE(made, err, SKV_MEMORY, "no memory to normalise %zu bytes", n);
    text = e->spm.data;
    n = e->spm.size;
    /* The unigram model sees user-defined pieces itself, with a score that always wins. */
    bool by_pieces = rules->user_defined.n_strings > 0 && e->t->model == SKV_MODEL_BPE;
    size_t done = 0, looked = 0;
    for (size_t i = 0; by_pieces && i < n;) {
        uint32_t id;
        if (i - looked >= LOOK_BYTES) {
            looked = i;
            if (!skv_budget_look(e->options.budget))
                return skv_budget_check(e->options.budget, "tokenizer", err);
        }
        size_t length = skv_trie_longest(&rules->user_defined, text + i, n - i, &id);
        if (length == 0) {
            i++;
            continue;
        }
        SKV_TRY(encode_spm_stretch(e, text + done, i - done, err));
        SKV_TRY(skv_ids_push(e->out, (int32_t)id, err));
        i += length;
        done = i;
    }
    return encode_spm_stretch(e, text + done, n - done, err);
}

/* Cuts tokens that are looked for after normalisation out of a normalised piece. */
static skv_status encode_normalized(encoder *e, const char *text, size_t n, bool first,
                                    skv_error *err)
{
    const skv_added *added = &e->t->added;
    const skv_added_text in = {.text = text,
                               .n = n,
                               .special = e->options.parse_special && !e->norm.marks_lost,
                               .marks = e->norm.marks,
                               .n_marks = e->norm.n_marks};
    size_t done = 0, at = 0;
    for (;;) {
        skv_added_match match = skv_added_find(added, &added->normalized, &in, done, &at);
        if (match.start > done) {
            SKV_TRY(
                skv_pretokenize(&e->pre, text + done, match.start - done, first && done == 0, err));
        }
        if (!match.token) return SKV_OK;
        SKV_TRY(skv_ids_push(e->out, (int32_t)match.token->id, err));
        done = match.end;
    }
}

/* Marks the bounds of data in text[from..to), for tokens that are searched for after normalisation.
 * Pieces come in order, so the marks before the current one are dropped. */
static skv_status mark_piece(encoder *e, size_t from, size_t to, skv_error *err)
{
    skv_text_marks *data = &e->data;
    size_t n = 0;
    while (data->n >= 2 && data->at[1] <= from) {
        data->at += 2;
        data->n -= 2;
    }
    while (n < data->n && data->at[n] < to) n++;
    if (!skv_norm_work_mark(&e->norm, n)) {
        if (e->options.budget) SKV_TRY(skv_budget_check(e->options.budget, "normalisation", err));
        return skv_fail(err, SKV_MEMORY, "no memory for %zu marks", n);
    }
    for (size_t i = 0; i < n; i++) e->norm.marks[i] = skv_max_size(data->at[i], from) - from;
    return SKV_OK;
}

static skv_status encode_piece(encoder *e, const char *text, size_t n, bool first, skv_error *err)
{
    const char *normalized;
    size_t n_normalized;
    if (e->t->spm.active) return encode_spm(e, text, n, err);
    SKV_TRY(skv_normalize(&e->t->normalizer, &e->norm, text, n, &normalized, &n_normalized, err));
    return encode_normalized(e, normalized, n_normalized, first, err);
}

static skv_status encode_text(encoder *e, const char *text, size_t n, skv_error *err)
{
    const skv_added *added = &e->t->added;
    const skv_added_text in = {.text = text,
                               .n = n,
                               .special = e->options.parse_special,
                               .marks = e->data.at,
                               .n_marks = e->data.n};
    const bool late = added->late_special && e->options.parse_special && in.n_marks > 0;
    size_t done = 0, at = 0;
    for (;;) {
        skv_added_match match = skv_added_find(added, &added->raw, &in, done, &at);
        if (match.start > done) {
            if (late) SKV_TRY(mark_piece(e, done, match.start, err));
            SKV_TRY(encode_piece(e, text + done, match.start - done, done == 0, err));
        }
        if (!match.token) return SKV_OK;
        SKV_TRY(skv_ids_push(e->out, (int32_t)match.token->id, err));
        done = match.end;
    }
}

static skv_status encode_all(encoder *e, const char *text, size_t n, skv_error *err)
{
    const skv_tokenizer *t = e->t;
    const bool special = e->options.add_special;
    if (special) SKV_TRY(skv_ids_append(e->out, t->prefix, t->n_prefix, err));
    if (n > 0) SKV_TRY(encode_text(e, text, n, err));
    return special ? skv_ids_append(e->out, t->suffix, t->n_suffix, err) : SKV_OK;
}

skv_status skv_tokenizer_encode(const skv_tokenizer *t, const char *text, size_t n,
                                skv_encode_options options, skv_ids *out, skv_error *err)
{
    SKV_REQUIRE(n <= SKV_ENCODE_BYTES_MAX, err, SKV_RANGE, "a text of %zu bytes, at most %d", n,
                (int)SKV_ENCODE_BYTES_MAX);
    encoder e = {.t = t, .options = options, .out = out};
    if (options.data) e.data = *options.data;
    const size_t before = out->n, most = options.max_ids, likely = n / 4 + 16;
    SKV_TRY(skv_ids_reserve(out, most > 0 ? skv_min_size(most, likely) : likely, err));
    out->max = most > 0 ? before + most : 0;
    skv_norm_work_init(&e.norm, options.budget);
    skv_pre_work_init(&e.pre, &t->pretokenizer, skv_text_growth(n), options.budget, on_word, &e);
    skv_word_work_init(&e.word, &t->bpe, &t->vocab, n, options.budget, out);
    skv_buf_init_within(&e.spm, skv_text_growth(n), options.budget);
    skv_status status = encode_all(&e, text, n, err);
    skv_buf_release(&e.spm);
    skv_word_work_release(&e.word);
    skv_pre_work_release(&e.pre);
    skv_norm_work_release(&e.norm);
    if (status == SKV_FULL && most > 0) status = SKV_OK; /* the requested number of ids is there */
    out->max = 0;
    if (status != SKV_OK) out->n = before;
    return status;
}

size_t skv_tokenizer_size(const skv_tokenizer *t)
{
    return t->vocab.n_ids;
}

int32_t skv_tokenizer_bos(const skv_tokenizer *t)
{
    return t->bos;
}

int32_t skv_tokenizer_eos(const skv_tokenizer *t)
{
    return t->eos;
}

bool skv_tokenizer_is_special(const skv_tokenizer *t, int32_t id)
{
    return id >= 0 && skv_vocab_has(&t->vocab, (uint32_t)id) &&
           (t->vocab.flags[id] & SKV_TOKEN_SPECIAL) != 0;
}

int32_t skv_tokenizer_find(const skv_tokenizer *t, const char *text, size_t n)
{
    uint32_t id = skv_vocab_find(&t->vocab, text, n);
    return id == SKV_NO_TOKEN ? -1 : (int32_t)id;
}

const char *skv_tokenizer_text(const skv_tokenizer *t, int32_t id, size_t *n)
{
    if (id < 0 || !skv_vocab_has(&t->vocab, (uint32_t)id)) return NULL;
    return skv_vocab_text(&t->vocab, (uint32_t)id, n);
}

const char *skv_tokenizer_chat_template(const skv_tokenizer *t)
{
    return t->chat_template;
}

skv_status skv_tokenizer_compare(const skv_tokenizer *t, const skv_tokenizer *other,
                                 const char *name, const char *role, skv_error *err)
{
    size_t n = skv_tokenizer_size(t), n_other = skv_tokenizer_size(other);
    SKV_REQUIRE(n == n_other, err, SKV_FORMAT,
                "%s: the %s's tokenizer has %zu tokens, the base's %zu", name, role, n_other, n);
    for (size_t id = 0; id < n; id++) {
        size_t n_a = 0, n_b = 0;
        const char *a = skv_tokenizer_text(t, (int32_t)id, &n_a);
        const char *b = skv_tokenizer_text(other, (int32_t)id, &n_b);
        bool same = (a && b) ? n_a == n_b && memcmp(a, b, n_a) == 0 : a == b;
        SKV_REQUIRE(same, err, SKV_FORMAT,
                    "%s: the %s's tokenizer has \"%.*s\" for id %zu, the base's \"%.*s\"", name,
                    role, (int)skv_min_size(n_b, TEXT_SHOWN), b ? b : "", id,
                    (int)skv_min_size(n_a, TEXT_SHOWN), a ? a : "");
    }
    return SKV_OK;
}
