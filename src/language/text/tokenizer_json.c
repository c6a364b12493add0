/* tokenizer.json: the model and the added tokens; the other parts are in their own files. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/json_doc.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_skim.h"

enum { ID_GAP_MAX = 1 << 20 }; /* ids may exceed the number of tokens by this and eight times it */

/* One added token of the file. */
typedef struct added_entry {
    const char *text;
    size_t n;
    uint32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
} added_entry;

static skv_status check_id(const skv_tokenizer *t, const json_t *value, const char *text,
                           uint32_t *out, skv_error *err)
{
    json_int_t id = json_integer_value(value);
    SKV_REQUIRE(json_is_integer(value) && id >= 0 && id < INT32_MAX, err, SKV_FORMAT,
                "%s: token '%.64s' has id %lld", t->name, text, (long long)id);
    *out = (uint32_t)id;
    return SKV_OK;
}

static skv_status read_added(const skv_tokenizer *t, const json_t *node, added_entry *out,
                             skv_error *err)
{
    *out = (added_entry){0};
    SKV_TRY(skv_node_text(t, node, "content", &out->text, &out->n, err));
    SKV_TRY(check_id(t, json_object_get(node, "id"), out->text, &out->id, err));
    SKV_TRY(skv_node_bool(t, node, "special", false, &out->special, err));
    SKV_TRY(skv_node_bool(t, node, "normalized", !out->special, &out->normalized, err));
    SKV_TRY(skv_node_bool(t, node, "single_word", false, &out->single_word, err));
    SKV_TRY(skv_node_bool(t, node, "lstrip", false, &out->lstrip, err));
    return skv_node_bool(t, node, "rstrip", false, &out->rstrip, err);
}

typedef struct vocab_size {
    size_t n_bytes, n_ids, n_tokens;
} vocab_size;

/* Visits every token of the vocabulary: counts them in `size` or, if that is NULL, adds them. */
static skv_status each_token(skv_tokenizer *t, const skv_skim *skim, vocab_size *size,
                             skv_error *err)
{
    const char *text;
    size_t n;
    uint32_t id = 0;
    bool more = true;
    skv_skim_cursor c;
    skv_status status = SKV_OK;
    skv_skim_begin(&c, skim->vocab, skim->n_vocab, t->name);
    for (;;) {
        status = skv_skim_token(&c, &more, &text, &n, &id, err);
        if (status != SKV_OK || !more) break;
        if (size) {
            size->n_bytes += n;
            size->n_tokens++;
            size->n_ids = skv_max_size(size->n_ids, (size_t)id + 1);
        } else if (!skv_vocab_put(&t->vocab, id, text, n, 0)) {
            status = skv_fail(err, SKV_FORMAT, "%s: token '%.*s' or its id %u is there twice",
                              t->name, (int)skv_min_size(n, 64), text, (unsigned)id);
            break;
        }
    }
    skv_skim_end(&c);
    return status;
}

/* Counts ids and bytes of the vocabulary and the added tokens, and makes the table for them. */
static skv_status size_vocab(skv_tokenizer *t, const skv_skim *skim, const json_t *added,
                             skv_error *err)
{
    vocab_size size = {.n_tokens = json_array_size(added)};
    SKV_TRY(each_token(t, skim, &size, err));
    for (size_t i = 0; i < json_array_size(added); i++) {
        added_entry entry;
        SKV_TRY(read_added(t, json_array_get(added, i), &entry, err));
        size.n_bytes += entry.n;
        size.n_ids = skv_max_size(size.n_ids, (size_t)entry.id + 1);
    }
    SKV_REQUIRE(size.n_ids <= size.n_tokens * 8 + ID_GAP_MAX, err, SKV_RANGE,
                "%s: token id %zu in a vocabulary of %zu tokens", t->name, size.n_ids - 1,
                size.n_tokens);
    return skv_vocab_init(&t->vocab, size.n_ids, size.n_bytes, t->name, err);
}

/* "left right" has one space. */
static skv_status split_merge(const skv_tokenizer *t, size_t i, skv_merge_text *merge,
                              skv_error *err)
{
    const char *text = merge->texts[0];
    size_t n = merge->lengths[0];
    const char *space = memchr(text, ' ', n);
    SKV_REQUIRE(space, err, SKV_FORMAT, "%s: merge %zu '%.*s' has no space", t->name, i,
                (int)skv_min_size(n, 64), text);
    merge->lengths[0] = (size_t)(space - text);
    merge->lengths[1] = n - merge->lengths[0] - 1;
    merge->texts[1] = space + 1;
    SKV_REQUIRE(!memchr(space + 1, ' ', merge->lengths[1]), err, SKV_FORMAT,
                "%s: merge %zu '%.*s' has two spaces", t->name, i, (int)skv_min_size(n, 64), text);
    return SKV_OK;
}

skv_status skv_put_merge(skv_tokenizer *t, size_t rank, const skv_merge_text *merge,
                         skv_buf *joined, skv_error *err)
{
    uint32_t ids[2];
    skv_buf_clear(joined);
    for (size_t k = 0; k < 2; k++) {
        ids[k] = skv_vocab_find(&t->vocab, merge->texts[k], merge->lengths[k]);
        SKV_REQUIRE(ids[k] != SKV_NO_TOKEN, err, SKV_FORMAT,
                    "%s: merge %zu names '%.*s', which is no token", t->name, rank,
                    (int)skv_min_size(merge->lengths[k], 64), merge->texts[k]);
        skv_buf_append(joined, merge->texts[k], merge->lengths[k]);
    }
    SKV_REQUIRE(!joined->failed, err, SKV_MEMORY, "%s: no memory for merge %zu", t->name, rank);
    uint32_t id = skv_vocab_find(&t->vocab, joined->data, joined->size);
    SKV_REQUIRE(id != SKV_NO_TOKEN, err, SKV_FORMAT,
                "%s: merge %zu makes '%.64s', which is no token", t->name, rank, joined->data);
    skv_bpe_put(&t->bpe.merges, ids[0], ids[1], (uint32_t)rank, id);
    return SKV_OK;
}

/* Calls for every merge; counts them, and puts them where `put` is set. */
static skv_status each_merge(skv_tokenizer *t, const skv_skim *skim, bool put, size_t *n_merges,
                             skv_error *err)
{
    skv_skim_cursor c;
    skv_buf joined;
    skv_status status = SKV_OK;
    skv_buf_init(&joined, SIZE_MAX / 4);
    skv_skim_begin(&c, skim->merges, skim->n_merges, t->name);
    for (*n_merges = 0;; ++*n_merges) {
        skv_merge_text merge = {0};
        bool more = false;
        status = skv_skim_merge(&c, &more, merge.texts, merge.lengths, err);
        if (status != SKV_OK || !more) break;
        if (!put) continue;
        if (!merge.texts[1]) status = split_merge(t, *n_merges, &merge, err);
        if (status == SKV_OK) status = skv_put_merge(t, *n_merges, &merge, &joined, err);
        if (status != SKV_OK) break;
    }
    skv_skim_end(&c);
    skv_buf_release(&joined);
    return status;
}

static skv_status read_merges(skv_tokenizer *t, const skv_skim *skim, skv_error *err)
{
    size_t n;
    SKV_REQUIRE(skim->merges, err, SKV_FORMAT, "%s: model without a list of merges", t->name);
    SKV_TRY(each_merge(t, skim, false, &n, err));
    SKV_REQUIRE(n < SKV_BPE_NONE && skv_bpe_init(&t->bpe.merges, n), err, SKV_MEMORY,
                "%s: no memory for %zu merges", t->name, n);
    return each_merge(t, skim, true, &n, err);
}

static skv_status read_model_flags(skv_tokenizer *t, const json_t *model, skv_error *err)
{
    static const char *const unsupported[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(model, unsupported[i]);
        SKV_REQUIRE(json_string_length(value) == 0, err, SKV_UNSUPPORTED, "%s: model with %s '%s'",
                    t->name, unsupported[i], json_string_value(value));
    }
    SKV_TRY(skv_node_bool(t, model, "byte_fallback", false, &t->bpe.byte_fallback, err));
    SKV_TRY(skv_node_bool(t, model, "ignore_merges", false, &t->bpe.ignore_merges, err));
    SKV_TRY(skv_node_bool(t, model, "fuse_unk", false, &t->bpe.fuse_unk, err));
    const json_t *unk = json_object_get(model, "unk_token");
    if (!unk || json_is_null(unk)) return SKV_OK;
    SKV_REQUIRE(json_is_string(unk), err, SKV_FORMAT, "%s: unk_token is not a text", t->name);
    t->bpe.unk = skv_vocab_find(&t->vocab, json_string_value(unk), json_string_length(unk));
    SKV_REQUIRE(t->bpe.unk != SKV_NO_TOKEN, err, SKV_FORMAT, "%s: unk_token '%s' is no token",
                t->name, json_string_value(unk));
    return SKV_OK;
}

static skv_status read_model(skv_tokenizer *t, const json_t *root, const skv_skim *skim,
                             skv_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    bool is_bpe = type ? strcmp(type, "BPE") == 0 : !!skim->merges;
    SKV_REQUIRE(is_bpe, err, SKV_UNSUPPORTED, "%s: model of type %s", t->name,
                type ? type : "(none)");
    SKV_REQUIRE(skim->vocab, err, SKV_FORMAT, "%s: model without a vocab", t->name);
    SKV_TRY(size_vocab(t, skim, json_object_get(root, "added_tokens"), err));
    SKV_TRY(each_token(t, skim, NULL, err));
    SKV_TRY(read_model_flags(t, model, err));
    SKV_TRY(read_merges(t, skim, err));
    skv_bpe_model_prepare(&t->bpe, &t->vocab);
    return SKV_OK;
}

/* Puts an added token into the search; those that are normalised are looked for as such. */
static skv_status search_for(skv_tokenizer *t, const added_entry *entry, skv_norm_work *work,
                             skv_error *err)
{
    skv_added_token token = {.id = entry->id,
                             .special = entry->special,
                             .single_word = entry->single_word,
                             .lstrip = entry->lstrip,
                             .rstrip = entry->rstrip};
    const char *text = entry->text;
    size_t n = entry->n;
    if (entry->normalized) {
        SKV_TRY(skv_normalize(&t->normalizer, work, entry->text, entry->n, &text, &n, err));
        bool same = n == entry->n && memcmp(text, entry->text, n) == 0;
        /* It decodes to the normalised form, which the decoder turns back. */
        SKV_REQUIRE(same || skv_vocab_respell(&t->vocab, entry->id, text, n), err, SKV_MEMORY,
                    "%s: no memory for the added tokens", t->name);
    }
    return skv_added_put(&t->added, text, n, token, entry->normalized, err);
}

static skv_status put_added(skv_tokenizer *t, const added_entry *entry, skv_norm_work *work,
                            skv_error *err)
{
    if (entry->n == 0) return SKV_OK;
    uint32_t known = skv_vocab_find(&t->vocab, entry->text, entry->n);
    SKV_REQUIRE(known == SKV_NO_TOKEN || known == entry->id, err, SKV_FORMAT,
                "%s: added token '%.64s' has id %u, and %u in the vocabulary", t->name, entry->text,
                (unsigned)entry->id, (unsigned)known);
    SKV_REQUIRE(known != SKV_NO_TOKEN ||
                    skv_vocab_put(&t->vocab, entry->id, entry->text, entry->n, SKV_TOKEN_ADDED),
                err, SKV_FORMAT, "%s: added token '%.64s' has the id %u of another one", t->name,
                entry->text, (unsigned)entry->id);
    if (entry->special) t->vocab.flags[entry->id] |= SKV_TOKEN_SPECIAL;
    if (entry->lstrip || entry->rstrip) t->vocab.flags[entry->id] |= SKV_TOKEN_STRIPS;
    return search_for(t, entry, work, err);
}

static skv_status read_added_tokens(skv_tokenizer *t, const json_t *list, skv_error *err)
{
    skv_norm_work work;
    skv_status status = SKV_OK;
    skv_norm_work_init(&work, NULL);
    for (size_t i = 0; i < json_array_size(list) && status == SKV_OK; i++) {
        added_entry entry;
        status = read_added(t, json_array_get(list, i), &entry, err);
        if (status == SKV_OK) status = put_added(t, &entry, &work, err);
    }
    skv_norm_work_release(&work);
    return status;
}

static skv_status read_root(skv_tokenizer *t, const json_t *root, const skv_skim *skim,
                            skv_error *err)
{
    SKV_TRY(skv_read_pretokenizer(t, json_object_get(root, "pre_tokenizer"), err));
    SKV_TRY(read_model(t, root, skim, err));
    SKV_TRY(skv_read_normalizer(t, json_object_get(root, "normalizer"), err));
    SKV_TRY(read_added_tokens(t, json_object_get(root, "added_tokens"), err));
    SKV_TRY(skv_read_decoder(t, json_object_get(root, "decoder"), err));
    return skv_read_postprocessor(t, json_object_get(root, "post_processor"), err);
}

/* The small parts as a tree, the large ones in place. */
static skv_status read_file(skv_tokenizer *t, const char *json, size_t n, skv_error *err)
{
    skv_skim skim;
    json_t *root = NULL;
    SKV_TRY(skv_skim_file(json, n, t->name, &skim, err));
    skv_status status =
        skv_json_load(skim.rest.data, skim.rest.size, SKV_TOKENIZER_FILE_MAX, t->name, &root, err);
    if (status == SKV_OK) status = read_root(t, root, &skim, err);
    json_decref(root);
    skv_buf_release(&skim.rest);
    return status;
}

/* ---- tokenizer_config.json: which tokens begin and end a text, and the chat template ---- */

/* "bos_token": a text, or an added token's object with its content; -1 when it is no token. */
static int32_t named_token(const skv_tokenizer *t, const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) return -1;
    return skv_tokenizer_find(t, json_string_value(value), json_string_length(value));
}

/* chat_template: a text, or a list of named ones of which "default" counts. */
static const json_t *find_template(const json_t *root)
{
    const json_t *value = json_object_get(root, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(item, "template");
    }
    return json_is_string(value) ? value : NULL;
}

static skv_status read_config(skv_tokenizer *t, const json_t *root, skv_error *err)
{
    int32_t bos = named_token(t, root, "bos_token"), eos = named_token(t, root, "eos_token");
    if (bos >= 0) t->bos = bos;
    if (eos >= 0) t->eos = eos;
    const json_t *text = find_template(root);
    if (!json_is_string(text)) return SKV_OK;
    skv_free(t->chat_template);
    t->chat_template = skv_strndup(json_string_value(text), json_string_length(text));
    SKV_REQUIRE(t->chat_template, err, SKV_MEMORY, "%s: no memory for the chat template", t->name);
    return SKV_OK;
}

/* In SentencePiece files the configuration decides which tokens are added; tokenizer.json says it
 * itself. */
static skv_status read_adding(skv_tokenizer *t, const json_t *root, skv_error *err)
{
    bool bos, eos;
    if (!t->spm.active) return SKV_OK;
    SKV_TRY(skv_node_bool(t, root, "add_bos_token", t->n_prefix > 0, &bos, err));
    SKV_TRY(skv_node_bool(t, root, "add_eos_token", t->n_suffix > 0, &eos, err));
    t->n_prefix = bos && t->bos >= 0 ? 1 : 0;
    t->n_suffix = eos && t->eos >= 0 ? 1 : 0;
    t->prefix[0] = t->bos;
    t->suffix[0] = t->eos;
    return SKV_OK;
}

skv_status skv_read_tokenizer_config(skv_tokenizer *t, const char *json, size_t n, skv_error *err)
{
    /* model_max_length is often 10^30: numbers are read as reals, nothing here needs them. */
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    json_error_t why;
    json_t *root = json_loadb(n > 0 ? json : "", n, flags, &why);
    SKV_REQUIRE(root, err, SKV_FORMAT, "tokenizer_config.json: line %d, column %d: %s", why.line,
                why.column, why.text);
    skv_status status = read_config(t, root, err);
    if (status == SKV_OK) status = read_adding(t, root, err);
    json_decref(root);
    return status;
}

skv_status skv_tokenizer_parse_json(const char *json, size_t n, const char *config, size_t n_config,
                                    const char *name, skv_tokenizer **out, skv_error *err)
{
    skv_tokenizer *t = NULL;
    SKV_REQUIRE(n <= SKV_TOKENIZER_FILE_MAX, err, SKV_RANGE, "%s: %zu bytes, at most %d", name, n,
                (int)SKV_TOKENIZER_FILE_MAX);
    SKV_TRY(skv_tokenizer_create(name, &t, err));
    skv_status status = read_file(t, json, n, err);
    if (status == SKV_OK && config) {
        status = skv_read_tokenizer_config(t, config, n_config, err);
    }
    if (status == SKV_OK)
        *out = t;
    else
        skv_tokenizer_free(t);
    return status;
}
