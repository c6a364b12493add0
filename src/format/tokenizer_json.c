/* tokenizer.json: the model and the added tokens; the other parts are in their own files. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/json_doc.h"
#include "format/tokenizer_impl.h"

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

/* Counts ids and bytes of the vocabulary and the added tokens, and makes the table for them. */
static skv_status size_vocab(skv_tokenizer *t, json_t *vocab, const json_t *added, skv_error *err)
{
    size_t n_bytes = 0, n_ids = 0, n_tokens = json_object_size(vocab) + json_array_size(added);
    const char *key;
    size_t n_key;
    json_t *value;
    uint32_t id = 0;
    json_object_keylen_foreach(vocab, key, n_key, value)
    {
        SKV_TRY(check_id(t, value, key, &id, err));
        n_bytes += n_key;
        n_ids = skv_max_size(n_ids, (size_t)id + 1);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        added_entry entry;
        SKV_TRY(read_added(t, json_array_get(added, i), &entry, err));
        n_bytes += entry.n;
        n_ids = skv_max_size(n_ids, (size_t)entry.id + 1);
    }
    SKV_REQUIRE(n_ids <= n_tokens * 8 + ID_GAP_MAX, err, SKV_RANGE,
                "%s: token id %zu in a vocabulary of %zu tokens", t->name, n_ids - 1, n_tokens);
    return skv_vocab_init(&t->vocab, n_ids, n_bytes, t->name, err);
}

static skv_status fill_vocab(skv_tokenizer *t, json_t *vocab, skv_error *err)
{
    const char *key;
    size_t n_key;
    json_t *value;
    json_object_keylen_foreach(vocab, key, n_key, value)
    {
        uint32_t id = (uint32_t)json_integer_value(value);
        SKV_REQUIRE(skv_vocab_put(&t->vocab, id, key, n_key, 0), err, SKV_FORMAT,
                    "%s: token '%.64s' has the id %u of another one", t->name, key, (unsigned)id);
    }
    return SKV_OK;
}

/* One merge: "left right", or [left, right]. */
static skv_status split_merge(const skv_tokenizer *t, const json_t *merge, size_t i,
                              skv_merge_text *out, skv_error *err)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        size_t n = json_string_length(merge);
        const char *space = memchr(text, ' ', n);
        SKV_REQUIRE(space != NULL, err, SKV_FORMAT, "%s: merge %zu '%.64s' has no space", t->name,
                    i, text);
        size_t n_left = (size_t)(space - text);
        *out = (skv_merge_text){{text, space + 1}, {n_left, n - n_left - 1}};
        SKV_REQUIRE(memchr(space + 1, ' ', n - n_left - 1) == NULL, err, SKV_FORMAT,
                    "%s: merge %zu '%.64s' has two spaces", t->name, i, text);
        return SKV_OK;
    }
    SKV_REQUIRE(json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right), err,
                SKV_FORMAT, "%s: merge %zu is not a pair of texts", t->name, i);
    *out = (skv_merge_text){{json_string_value(left), json_string_value(right)},
                            {json_string_length(left), json_string_length(right)}};
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

static skv_status read_merges(skv_tokenizer *t, const json_t *merges, skv_error *err)
{
    size_t n = json_array_size(merges);
    skv_buf joined;
    skv_status status = SKV_OK;
    SKV_REQUIRE(json_is_array(merges), err, SKV_FORMAT, "%s: model without a list of merges",
                t->name);
    SKV_REQUIRE(n < SKV_BPE_NONE && skv_bpe_init(&t->bpe.merges, n), err, SKV_MEMORY,
                "%s: no memory for %zu merges", t->name, n);
    skv_buf_init(&joined, SIZE_MAX / 4);
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        skv_merge_text merge = {0};
        status = split_merge(t, json_array_get(merges, i), i, &merge, err);
        if (status == SKV_OK) status = skv_put_merge(t, i, &merge, &joined, err);
    }
    skv_buf_release(&joined);
    return status;
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
    if (unk == NULL || json_is_null(unk)) return SKV_OK;
    SKV_REQUIRE(json_is_string(unk), err, SKV_FORMAT, "%s: unk_token is not a text", t->name);
    t->bpe.unk = skv_vocab_find(&t->vocab, json_string_value(unk), json_string_length(unk));
    SKV_REQUIRE(t->bpe.unk != SKV_NO_TOKEN, err, SKV_FORMAT, "%s: unk_token '%s' is no token",
                t->name, json_string_value(unk));
    return SKV_OK;
}

static skv_status read_model(skv_tokenizer *t, const json_t *root, skv_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    json_t *vocab = json_object_get(model, "vocab");
    const char *type = json_string_value(json_object_get(model, "type"));
    bool is_bpe =
        type == NULL ? json_is_array(json_object_get(model, "merges")) : strcmp(type, "BPE") == 0;
    SKV_REQUIRE(is_bpe, err, SKV_UNSUPPORTED, "%s: model of type %s", t->name,
                type != NULL ? type : "(none)");
    SKV_REQUIRE(json_is_object(vocab), err, SKV_FORMAT, "%s: model without a vocab", t->name);
    SKV_TRY(size_vocab(t, vocab, added, err));
    SKV_TRY(fill_vocab(t, vocab, err));
    SKV_TRY(read_model_flags(t, model, err));
    SKV_TRY(read_merges(t, json_object_get(model, "merges"), err));
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
                    skv_vocab_put(&t->vocab, entry->id, entry->text, entry->n, 0),
                err, SKV_FORMAT, "%s: added token '%.64s' has the id %u of another one", t->name,
                entry->text, (unsigned)entry->id);
    if (entry->special) t->vocab.flags[entry->id] |= SKV_TOKEN_SPECIAL;
    return search_for(t, entry, work, err);
}

static skv_status read_added_tokens(skv_tokenizer *t, const json_t *list, skv_error *err)
{
    skv_norm_work work;
    skv_status status = SKV_OK;
    skv_norm_work_init(&work, SIZE_MAX / 4);
    for (size_t i = 0; i < json_array_size(list) && status == SKV_OK; i++) {
        added_entry entry;
        status = read_added(t, json_array_get(list, i), &entry, err);
        if (status == SKV_OK) status = put_added(t, &entry, &work, err);
    }
    skv_norm_work_release(&work);
    return status;
}

static skv_status read_root(skv_tokenizer *t, const json_t *root, skv_error *err)
{
    SKV_TRY(skv_read_pretokenizer(t, json_object_get(root, "pre_tokenizer"), err));
    SKV_TRY(read_model(t, root, err));
    SKV_TRY(skv_read_normalizer(t, json_object_get(root, "normalizer"), err));
    SKV_TRY(read_added_tokens(t, json_object_get(root, "added_tokens"), err));
    SKV_TRY(skv_read_decoder(t, json_object_get(root, "decoder"), err));
    return skv_read_postprocessor(t, json_object_get(root, "post_processor"), err);
}

skv_status skv_tokenizer_parse_json(const char *json, size_t n, const char *config, size_t n_config,
                                    const char *name, skv_tokenizer **out, skv_error *err)
{
    json_t *root;
    skv_tokenizer *t = NULL;
    SKV_TRY(skv_json_load(json, n, SKV_TOKENIZER_FILE_MAX, name, &root, err));
    skv_status status = skv_tokenizer_create(name, &t, err);
    if (status == SKV_OK) status = read_root(t, root, err);
    if (status == SKV_OK && config != NULL) {
        status = skv_read_tokenizer_config(t, config, n_config, err);
    }
    json_decref(root);
    if (status == SKV_OK)
        *out = t;
    else
        skv_tokenizer_free(t);
    return status;
}
