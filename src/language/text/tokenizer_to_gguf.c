/* A tokenizer as the metadata of a GGUF file: see tokenizer.h and, for the keys, tokenizer_gguf.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "format/gguf_write.h"
#include "text/tokenizer_impl.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };
enum { FILE_BYTES_MAX = 1 << 30, PROBE_BYTES_MAX = 64 << 20, PROBED_TOKENS_MAX = 64 };

/* Two tokens that become one. */
typedef struct merge {
    uint32_t rank, left, right, id;
} merge;

/* State shared by all attempts. */
typedef struct converter {
    const skv_tokenizer *t;
    size_t n_ids;
    merge *merges; /* owned, [n_merges], by rank */
    size_t n_merges;
    skv_buf probe; /* a text that distinguishes the rules of splitting */
} converter;

/* One way to express the tokenizer. */
typedef struct attempt {
    const char *model; /* tokenizer.ggml.model */
    const char *pre;   /* "gpt2": the name of its splitting */
    bool space_prefix; /* "llama": the text is preceded by a space */
} attempt;

/* ---- input of the conversion ---- */

static int by_rank(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static skv_status list_merges(converter *c, skv_error *err)
{
    const skv_bpe *bpe = &c->t->bpe.merges;
    c->merges = skv_alloc(bpe->n_pairs + 1, sizeof *c->merges);
    SKV_REQUIRE(c->merges, err, SKV_MEMORY, "%s: no memory for %zu merges", c->t->name,
                bpe->n_pairs);
    for (size_t i = 0; bpe->pairs && i <= bpe->mask; i++) {
        const skv_bpe_pair *p = &bpe->pairs[i];
        if (p->id == SKV_BPE_NONE) continue;
        c->merges[c->n_merges++] =
            (merge){p->rank, (uint32_t)(p->key >> 32), (uint32_t)p->key, p->id};
    }
    qsort(c->merges, c->n_merges, sizeof *c->merges, by_rank);
    return SKV_OK;
}

/* Adds a character to the probe unless the vocabulary lacks it: GGUF cannot express its encoding
 * then. */
static skv_status add_character(converter *c, const char *text, size_t n, skv_error *err)
{
    skv_ids ids = {0};
    bool known = c->t->bpe.byte_level;
    skv_status status = SKV_OK;
    if (!known) {
        status = skv_tokenizer_encode(c->t, text, n, (skv_encode_options){0}, &ids, err);
        known = true;
        for (size_t i = 0; i < ids.n; i++) known = known && (uint32_t)ids.data[i] != c->t->bpe.unk;
        skv_ids_release(&ids);
    }
    if (known) (void)skv_buf_append(&c->probe, text, n);
    return status;
}

/* Letters with and without case, marks, digits of several scripts, contractions, white space of all
 * kinds, punctuation. */
static skv_status add_text(converter *c, skv_error *err)
{
    static const char text[] =
        "Hello World, it's We'LL they'Ve \n\n \t\r\n  x1 12 123 1234 567890 a1b22c333 3.14e-10 "
        "CamelCaseWORDS snake_case __init__(self): {\"k\": [1,2]} == != <= ?! ... --- ``` ''' "
        "na\xc3\xafve \xc3\x89"
        "cole e\xcc\x81"
        "te\xcc\x81 \xce\xb1\xce\xb2\xce\xb3 "
        "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96"
        "\xe7\x95\x8c\xe3\x80\x82 \xe3\x81\x93\xe3\x82\x93 \xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 "
        "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\x82 \xd9\xa3\xd9\xa4\xd9\xa5 \xc2\xbd \xf0\x9f\x98\x80"
        "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xe2\x80\x9cquoted\xe2\x80\x9d \xc2\xa0nbsp\xe3\x80\x80"
        "wide $5 a+b a^b ~x |y| \r\r end\n ";
    for (size_t at = 0; at < sizeof text - 1;) {
        uint32_t character;
        const size_t n = skv_utf8_decode(text + at, sizeof text - 1 - at, &character);
        SKV_TRY(add_character(c, text + at, n, err));
        at += n;
    }
    return SKV_OK;
}

/* The vocabulary itself: a rule that splits a token's text makes other ids of it. */
static skv_status add_vocabulary(converter *c, skv_error *err)
{
    skv_status status = SKV_OK;
    skv_buf text;
    skv_buf_init(&text, 1 << 20);
    for (size_t i = 0; i < c->t->vocab.n_ids && status == SKV_OK; i++) {
        const int32_t id = (int32_t)i;
        size_t bad;
        const unsigned none = SKV_TOKEN_SPECIAL | SKV_TOKEN_LITERAL | SKV_TOKEN_UNKNOWN;
        if (!skv_vocab_has(&c->t->vocab, (uint32_t)i) || (c->t->vocab.flags[i] & none)) continue;
        skv_buf_clear(&text);
        status = skv_tokenizer_decode(c->t, &id, 1, (skv_decode_options){0}, &text, err);
        if (status != SKV_OK || !skv_utf8_valid(text.data, text.size, &bad)) continue;
        (void)skv_buf_append(&c->probe, text.data, text.size);
    }
    skv_buf_release(&text);
    return status;
}

/* Makes a text that distinguishes tokenizers. */
static skv_status make_probe(converter *c, skv_error *err)
{
    const skv_added *added = &c->t->added;
    SKV_TRY(add_text(c, err));
    for (size_t i = 0; i < added->n && i < PROBED_TOKENS_MAX; i++) {
        size_t n;
        const char *token = skv_vocab_text(&c->t->vocab, added->tokens[i].id, &n);
        (void)skv_buf_append(&c->probe, token, n);
        (void)skv_buf_text(&c->probe, "word two");
    }
    SKV_TRY(add_vocabulary(c, err));
    SKV_REQUIRE(!c->probe.failed, err, SKV_MEMORY, "%s: no memory", c->t->name);
    return SKV_OK;
}

/* ---- the entries ---- */

static int type_of(const converter *c, size_t i)
{
    if (!skv_vocab_has(&c->t->vocab, (uint32_t)i)) return TYPE_UNUSED;
    const unsigned flags = c->t->vocab.flags[i];
    if (flags & SKV_TOKEN_UNKNOWN) return TYPE_UNKNOWN;
    if (flags & SKV_TOKEN_BYTE) return TYPE_BYTE;
    for (size_t k = 0; k < c->t->added.n; k++) {
        if (c->t->added.tokens[k].id != i) continue;
        return c->t->added.tokens[k].special ? TYPE_CONTROL : TYPE_USER_DEFINED;
    }
    if (flags & SKV_TOKEN_SPECIAL) return TYPE_CONTROL;
    return flags & SKV_TOKEN_LITERAL ? TYPE_USER_DEFINED : TYPE_NORMAL;
}

static void put_tokens(const converter *c, skv_gguf_out *out)
{
    skv_gguf_put_array(out, "tokenizer.ggml.tokens", SKV_GGUF_STRING, c->n_ids);
    for (size_t i = 0; i < c->n_ids; i++) {
        char pad[32];
        size_t n;
        const char *text = pad;
        if (skv_vocab_has(&c->t->vocab, (uint32_t)i)) {
            text = skv_vocab_text(&c->t->vocab, (uint32_t)i, &n);
        } else {
            n = (size_t)snprintf(pad, sizeof pad, "[PAD%zu]", i);
        }
        skv_gguf_put_element_text(out, text, n);
    }
    skv_gguf_put_array(out, "tokenizer.ggml.token_type", SKV_GGUF_I32, c->n_ids);
    for (size_t i = 0; i < c->n_ids; i++) skv_gguf_put_element_i32(out, type_of(c, i));
}

static void put_merges(const converter *c, skv_gguf_out *out, skv_buf *text)
{
    skv_gguf_put_array(out, "tokenizer.ggml.merges", SKV_GGUF_STRING, c->n_merges);
    for (size_t i = 0; i < c->n_merges; i++) {
        const uint32_t halves[2] = {c->merges[i].left, c->merges[i].right};
        skv_buf_clear(text);
        for (size_t k = 0; k < 2; k++) {
            size_t n;
            const char *half = skv_vocab_text(&c->t->vocab, halves[k], &n);
            if (k > 0) skv_buf_byte(text, ' ');
            (void)skv_buf_append(text, half, n);
        }
        if (text->failed) out->entries.failed = true;
        skv_gguf_put_element_text(out, text->data, text->size);
    }
}

/* SentencePiece merges the pair whose result has the highest score: the earlier, the higher. */
static skv_status put_scores(const converter *c, skv_gguf_out *out, skv_error *err)
{
    float *scores = skv_alloc(c->n_ids, sizeof *scores);
    SKV_REQUIRE(scores, err, SKV_MEMORY, "%s: no memory for scores", c->t->name);
    for (size_t i = 0; i < c->n_ids; i++) scores[i] = -(float)(c->n_merges + 1);
    for (size_t i = c->n_merges; i-- > 0;) {
        if (c->merges[i].id < c->n_ids) scores[c->merges[i].id] = -(float)i;
    }
    skv_gguf_put_array(out, "tokenizer.ggml.scores", SKV_GGUF_F32, c->n_ids);
    for (size_t i = 0; i < c->n_ids; i++) skv_gguf_put_element_f32(out, scores[i]);
    skv_free(scores);
    return SKV_OK;
}

static void put_ends(const converter *c, skv_gguf_out *out)
{
    const skv_tokenizer *t = c->t;
    if (t->bos >= 0) skv_gguf_put_u32(out, "tokenizer.ggml.bos_token_id", (size_t)t->bos);
    if (t->eos >= 0) skv_gguf_put_u32(out, "tokenizer.ggml.eos_token_id", (size_t)t->eos);
    skv_gguf_put_bool(out, "tokenizer.ggml.add_bos_token", t->n_prefix > 0);
    skv_gguf_put_bool(out, "tokenizer.ggml.add_eos_token", t->n_suffix > 0);
    if (t->chat_template) skv_gguf_put_text(out, "tokenizer.chat_template", t->chat_template);
}

static skv_status put_entries(const converter *c, const attempt *a, skv_gguf_out *out,
                              skv_error *err)
{
    const bool by_scores = strcmp(a->model, "llama") == 0;
    const uint32_t unk = c->t->bpe.unk;
    skv_gguf_put_text(out, "tokenizer.ggml.model", a->model);
    if (a->pre) skv_gguf_put_text(out, "tokenizer.ggml.pre", a->pre);
    put_tokens(c, out);
    if (!a->pre) {
        skv_gguf_put_bool(out, "tokenizer.ggml.add_space_prefix", a->space_prefix);
        if (unk != SKV_NO_TOKEN) skv_gguf_put_u32(out, "tokenizer.ggml.unknown_token_id", unk);
    }
    if (by_scores) {
        SKV_TRY(put_scores(c, out, err));
    } else {
        skv_buf text;
        skv_buf_init(&text, 1 << 20);
        put_merges(c, out, &text);
        skv_buf_release(&text);
    }
    put_ends(c, out);
    return SKV_OK;
}

/* ---- trying it ---- */

static skv_status same_ids(const converter *c, const skv_tokenizer *other, bool *same,
                           skv_error *err)
{
    const skv_encode_options options = {.add_special = true, .parse_special = true};
    skv_ids a = {0}, b = {0};
    skv_status status = skv_tokenizer_encode(c->t, c->probe.data, c->probe.size, options, &a, err);
    if (status == SKV_OK) {
        status = skv_tokenizer_encode(other, c->probe.data, c->probe.size, options, &b, err);
    }
    *same = status == SKV_OK && a.n == b.n && memcmp(a.data, b.data, a.n * sizeof *a.data) == 0;
    skv_ids_release(&a);
    skv_ids_release(&b);
    return status;
}

/* Whether a file with these entries has the same tokenizer. */
static skv_status try_entries(const converter *c, const skv_gguf_out *entries, bool *same,
                              skv_error *err)
{
    skv_buf file;
    skv_gguf *gguf = NULL;
    skv_tokenizer *t = NULL;
    skv_buf_init(&file, FILE_BYTES_MAX);
    skv_gguf_print(entries, &file);
    skv_status status =
        file.failed ? skv_fail(err, SKV_MEMORY, "%s: no memory, or no room, for GGUF", c->t->name)
                    : skv_gguf_parse(file.data, file.size, c->t->name, &gguf, err);
    if (status == SKV_OK) status = skv_tokenizer_open_gguf(gguf, &t, err);
    if (status == SKV_OK) status = same_ids(c, t, same, err);
    skv_tokenizer_free(t);
    skv_gguf_close(gguf);
    skv_buf_release(&file);
    return status;
}

static skv_status try_one(const converter *c, const attempt *a, skv_gguf_out *out, bool *same,
                          skv_error *err)
{
    skv_gguf_out entries;
    skv_gguf_out_init(&entries);
    skv_status status = put_entries(c, a, &entries, err);
    if (status == SKV_OK) status = try_entries(c, &entries, same, err);
    skv_gguf_out_release(&entries);
    return status == SKV_OK && *same ? put_entries(c, a, out, err) : status;
}

static skv_status try_all(const converter *c, skv_gguf_out *out, skv_error *err)
{
    /* Several may fit a small vocabulary: the one that splits most often is most specific. */
    static const char *const first[] = {"smollm", "gpt-2", "qwen2", "llama-bpe"};
    enum { N_FIRST = sizeof first / sizeof *first };
    bool same = false;
    if (c->t->bpe.byte_level) {
        const char *name = first[0];
        for (size_t i = 0; !same && name; i++) {
            SKV_TRY(try_one(c, &(attempt){"gpt2", .pre = name}, out, &same, err));
            name = i + 1 < N_FIRST ? first[i + 1] : skv_pre_type_name(i + 1 - N_FIRST);
        }
    } else {
        static const attempt forms[] = {
            {"llama", NULL, true}, {"llama", NULL, false}, {"gemma4", NULL, false}};
        /* SentencePiece's own merges may join characters that are no tokens: no list has them. */
        const size_t n_forms = sizeof forms / sizeof *forms - (c->t->spm.active ? 1 : 0);
        for (size_t i = 0; !same && i < n_forms; i++) {
            SKV_TRY(try_one(c, &forms[i], out, &same, err));
        }
    }
    SKV_REQUIRE(same, err, SKV_UNSUPPORTED,
                "%s: GGUF has no name for the way this tokenizer splits a text", c->t->name);
    return SKV_OK;
}

skv_status skv_tokenizer_to_gguf(const skv_tokenizer *t, size_t n_ids, skv_gguf_out *out,
                                 skv_error *err)
{
    converter c = {.t = t, .n_ids = n_ids};
    SKV_REQUIRE(t->model == SKV_MODEL_BPE, err, SKV_UNSUPPORTED,
                "%s: a unigram model is not written as GGUF", t->name);
    SKV_REQUIRE(t->vocab.n_ids <= n_ids, err, SKV_FORMAT,
                "%s: %zu tokens, but the model's embedding has %zu rows", t->name, t->vocab.n_ids,
                n_ids);
    skv_buf_init(&c.probe, PROBE_BYTES_MAX);
    skv_status status = make_probe(&c, err);
    if (status == SKV_OK) status = list_merges(&c, err);
    if (status == SKV_OK) status = try_all(&c, out, err);
    skv_buf_release(&c.probe);
    skv_free(c.merges);
    return status;
}
