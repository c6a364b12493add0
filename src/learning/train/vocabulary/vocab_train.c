/* A learnt vocabulary as the files of a model folder: tokenizer.json, tokenizer_config.json. */
#include "skv/vocab_train.h"

#include <ctype.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/doc_maker.h"
#include "train/vocabulary/bpe_train.h"

enum { SPECIALS = 5, SIZE_LIMIT = 1 << 16, PORTION = 1 << 20 };
#define FILE_MAX ((size_t)1 << 30)
#define JSON_MAX ((size_t)1 << 28)

/* The first two begin a text and end a turn or a text. */
static const char *const specials[SPECIALS] = {"<|begin|>", "<|end|>", "<|user|>", "<|assistant|>",
                                               "<|system|>"};

/* An answer begins with a space, so that its words are the tokens that they are inside a text. */
static const char chat_template[] =
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['role'] == 'assistant' %} {{ message['content'] | trim }}"
    "{% else %}{{ message['content'] }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

skv_vocab_train_options skv_vocab_train_default(void)
{
    return (skv_vocab_train_options){.size = 3072, .n_documents = 2000};
}

/* ---- the training text ---- */

static void tell(const skv_bpe_trainer *t, const char *what, double done, double all)
{
    if (t->on_progress && all > 0) t->on_progress(t->user, what, done / all);
}

/* Returns an end for a portion that cuts no word: before the end of a line whose last byte is a
 * letter or a digit, since no word has both. */
static size_t portion_end(const char *text, size_t n, size_t at)
{
    size_t i = n - at > PORTION ? at + PORTION : n;
    while (i < n && !(text[i] == '\n' && isalnum((unsigned char)text[i - 1]))) i++;
    return i;
}

static skv_status add_file(skv_bpe_trainer *t, const char *path, skv_error *err)
{
    skv_file_map map;
    SKV_TRY(skv_file_map_open(path, &map, err));
    SKV_TRY(map.size <= FILE_MAX
                ? SKV_OK
                : skv_fail(err, SKV_RANGE, "%s: %zu bytes, at most %zu", path, map.size, FILE_MAX));
    const char *text = (const char *)map.data;
    skv_status status = SKV_OK;
    for (size_t at = 0, end; status == SKV_OK && at < map.size; at = end) {
        end = portion_end(text, map.size, at);
        status = skv_bpe_trainer_add(t, text + at, end - at, err);
        tell(t, path, (double)end, (double)map.size);
    }
    skv_file_map_close(&map);
    return status;
}

static skv_status add_pieces(skv_bpe_trainer *t, const skv_document *doc, skv_buf *answer,
                             skv_error *err)
{
    for (size_t i = 0; i < doc->n_pieces; i++) {
        const skv_piece *piece = &doc->pieces[i];
        const char *text = doc->text.data + piece->at;
        if (piece->role != SKV_PIECE_ASSISTANT) {
            SKV_TRY(skv_bpe_trainer_add(t, text, piece->n, err));
            continue;
        }
        skv_buf_clear(answer);
        (void)skv_buf_byte(answer, ' ');
        SKV_REQUIRE(skv_buf_append(answer, text, piece->n), err, SKV_MEMORY,
                    "vocabulary: no memory");
        SKV_TRY(skv_bpe_trainer_add(t, answer->data, answer->size, err));
    }
    return SKV_OK;
}

static skv_status add_documents(skv_bpe_trainer *t, const skv_vocab_train_options *o,
                                skv_error *err)
{
    skv_documents *documents;
    SKV_TRY(skv_documents_create(o->documents, NULL, &documents, err));
    skv_document doc;
    skv_document_init(&doc);
    skv_buf answer;
    skv_buf_init(&answer, JSON_MAX);
    skv_status status = SKV_OK;
    for (uint64_t i = 0; i < o->n_documents && status == SKV_OK; i++) {
        status = skv_documents_make(documents, i, &doc, err);
        if (status == SKV_OK) status = add_pieces(t, &doc, &answer, err);
        tell(t, "documents", (double)i + 1, (double)o->n_documents);
    }
    skv_buf_release(&answer);
    skv_document_release(&doc);
    skv_documents_close(documents);
    return status;
}

/* ---- tokenizer.json ---- */

static void put_spelling(const skv_bpe_trainer *t, uint32_t id, skv_buf *out)
{
    const skv_bpe_token *token = &t->vocab[id - t->first];
    for (size_t i = 0; i < token->n; i++) {
        const uint32_t code = skv_alphabet_char((unsigned char)t->spelling.data[token->at + i]);
        char text[4];
        (void)skv_buf_json_text(out, text, skv_utf8_encode(code, text));
    }
}

static void put_added(skv_buf *out)
{
    (void)skv_buf_text(out, "  \"added_tokens\": [\n");
    for (int i = 0; i < SPECIALS; i++) {
        (void)skv_buf_printf(out,
                             "    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, "
                             "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                             "\"special\": true}%s\n",
                             i, specials[i], i + 1 < SPECIALS ? "," : "");
    }
    (void)skv_buf_text(out, "  ],\n");
}

/* The splitting that bpe_train.c counted words by, and a text that begins with the first special
 * token. */
static void put_steps(skv_buf *out)
{
    (void)skv_buf_printf(
        out,
        "  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
        "    {\"type\": \"Digits\", \"individual_digits\": true},\n"
        "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": true}]},\n"
        "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
        "    \"single\": [{\"SpecialToken\": {\"id\": \"%s\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
        "    \"pair\": [{\"SpecialToken\": {\"id\": \"%s\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
        "    \"special_tokens\": {\"%s\": {\"id\": \"%s\", \"ids\": [0], \"tokens\": [\"%s\"]}}},\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
        "\"trim_offsets\": true, \"use_regex\": true},\n",
        specials[0], specials[0], specials[0], specials[0], specials[0]);
}

static void put_model(const skv_bpe_trainer *t, skv_buf *out)
{
    (void)skv_buf_text(out, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, "
                            "\"unk_token\": null, \"continuing_subword_prefix\": null, "
                            "\"end_of_word_suffix\": null, \"fuse_unk\": false, "
                            "\"byte_fallback\": false, \"ignore_merges\": false,\n"
                            "    \"vocab\": {\n");
    for (int i = 0; i < SPECIALS; i++) {
        (void)skv_buf_printf(out, "      \"%s\": %d,\n", specials[i], i);
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        (void)skv_buf_text(out, "      \"");
        put_spelling(t, t->first + i, out);
        (void)skv_buf_printf(out, "\": %u%s\n", t->first + i, i + 1 < t->n_vocab ? "," : "");
    }
    (void)skv_buf_text(out, "    },\n    \"merges\": [\n");
    for (size_t i = 0; i < t->n_merges; i++) {
        (void)skv_buf_text(out, "      \"");
        put_spelling(t, t->merges[i].left, out);
        (void)skv_buf_byte(out, ' ');
        put_spelling(t, t->merges[i].right, out);
        (void)skv_buf_printf(out, "\"%s\n", i + 1 < t->n_merges ? "," : "");
    }
    (void)skv_buf_text(out, "    ]}\n}\n");
}

static void put_config(skv_buf *out)
{
    (void)skv_buf_printf(out,
                         "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                         "  \"bos_token\": \"%s\",\n  \"eos_token\": \"%s\",\n"
                         "  \"add_bos_token\": true,\n"
                         "  \"clean_up_tokenization_spaces\": false,\n  \"chat_template\": \"",
                         specials[0], specials[1]);
    (void)skv_buf_json_text(out, chat_template, sizeof chat_template - 1);
    (void)skv_buf_text(out, "\"\n}\n");
}

static skv_status write_file(const char *folder, const char *name, const skv_buf *text,
                             skv_error *err)
{
    SKV_REQUIRE(!text->failed, err, SKV_MEMORY, "%s: no memory for %s", folder, name);
    char *path = skv_path_join(folder, name);
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory for %s", folder, name);
    skv_status status = skv_file_write(path, text->data, text->size, err);
    skv_free(path);
    return status;
}

static skv_status write_files(const skv_bpe_trainer *t, const char *folder, skv_error *err)
{
    SKV_TRY(skv_folder_create(folder, err));
    skv_buf json, config;
    skv_buf_init(&json, JSON_MAX);
    skv_buf_init(&config, JSON_MAX);
    (void)skv_buf_text(&json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                              "  \"padding\": null,\n");
    put_added(&json);
    put_steps(&json);
    put_model(t, &json);
    put_config(&config);
    skv_status status = write_file(folder, "tokenizer.json", &json, err);
    if (status == SKV_OK) status = write_file(folder, "tokenizer_config.json", &config, err);
    skv_buf_release(&json);
    skv_buf_release(&config);
    return status;
}

/* ---- all of it ---- */

static skv_status train(skv_bpe_trainer *t, const char *folder, const skv_vocab_train_options *o,
                        skv_error *err)
{
    for (size_t i = 0; i < o->n_files; i++) SKV_TRY(add_file(t, o->files[i], err));
    if (o->documents) SKV_TRY(add_documents(t, o, err));
    SKV_REQUIRE(t->n_words > 0, err, SKV_ARGUMENT, "%s: no text to learn a vocabulary from",
                folder);
    SKV_TRY(skv_bpe_trainer_learn(t, o->size - SPECIALS, err));
    return write_files(t, folder, err);
}

skv_status skv_vocab_train(const char *folder, const skv_vocab_train_options *o,
                           skv_vocab_train_report *report, skv_error *err)
{
    SKV_REQUIRE(o->size >= SPECIALS + 256 && o->size <= SIZE_LIMIT, err, SKV_RANGE,
                "vocabulary: %zu entries, expected %d to %d", o->size, SPECIALS + 256, SIZE_LIMIT);
    skv_bpe_trainer t;
    SKV_TRY(skv_bpe_trainer_init(&t, SPECIALS, err));
    t.on_progress = o->on_progress;
    t.user = o->user;
    skv_status status = train(&t, folder, o, err);
    if (status == SKV_OK && report) {
        *report = (skv_vocab_train_report){.size = SPECIALS + t.n_vocab,
                                           .merges = t.n_merges,
                                           .bytes = t.n_bytes,
                                           .words = t.n_words,
                                           .bytes_per_token = (double)t.n_bytes /
                                                              (double)skv_bpe_trainer_tokens(&t)};
    }
    skv_bpe_trainer_release(&t);
    return status;
}
