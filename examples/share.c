/*
 * Reads a document once, then answers several questions about it: each question's sequence shares
 * the document's KV pages.
 *     share MODEL DOCUMENT QUESTION...
 * Installed, it builds with: cc share.c $(pkg-config --cflags --libs skv)
 */
#include <stdio.h>
#include <string.h>

#include <skv/skv.h>
#include <skv/text.h>

enum { ANSWER_TOKENS = 32 };

typedef struct model {
    skv_engine *engine;
    skv_vocab *vocab;
} model;

static skv_status encode(const model *m, const char *text, bool first, int32_t **ids, size_t *n,
                         skv_error *err)
{
    return skv_vocab_encode(m->vocab, (skv_text_piece){text, strlen(text)},
                            (skv_encode_options){.add_special = first}, ids, n, err);
}

/* Prints the answer to a question at the end of a sequence. */
static skv_status answer(const model *m, skv_sequence *sequence, const char *question,
                         skv_error *err)
{
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, n_text = 0;
    skv_sampler *sampler = NULL;
    skv_generation_stats stats = {0};
    const skv_sampling greedy = skv_sampling_default();
    skv_status status = encode(m, question, false, &ids, &n, err);
    if (status == SKV_OK)
        status = skv_sampler_create(&greedy, skv_engine_vocab(m->engine), &sampler, err);
    if (status == SKV_OK) {
        const size_t begin = skv_sequence_length(sequence) + n;
        skv_generation generation = {
            .max_tokens = ANSWER_TOKENS, .sampler = sampler, .stats = &stats};
        status = skv_generate(m->engine, sequence, ids, n, &generation, err);
        if (status == SKV_OK) {
            const skv_id_piece answered = {skv_sequence_ids(sequence) + begin,
                                           skv_sequence_length(sequence) - begin};
            status =
                skv_vocab_decode(m->vocab, answered, (skv_decode_options){0}, &text, &n_text, err);
        }
    }
    if (status == SKV_OK)
        (void)printf("%s%s\n(first token after %.1f ms)\n", question, text,
                     (double)stats.ttft_ns * 1e-6);
    skv_text_free(text);
    skv_text_free(ids);
    skv_sampler_free(sampler);
    return status;
}

static skv_status answer_all(const model *m, const char *document, char **questions,
                             size_t n_questions, skv_error *err)
{
    skv_sequence *base = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    skv_status status = encode(m, document, true, &ids, &n, err);
    if (status == SKV_OK) status = skv_sequence_create(m->engine, 0, &base, err);
    if (status == SKV_OK) status = skv_prompt(m->engine, base, ids, n, NULL, err);
    for (size_t i = 0; status == SKV_OK && i < n_questions; i++) {
        skv_sequence *fork = NULL;
        status = skv_sequence_create(m->engine, 0, &fork, err);
        if (status == SKV_OK) status = skv_sequence_share(fork, base, n, err);
        if (status == SKV_OK) status = answer(m, fork, questions[i], err);
        skv_sequence_free(fork);
    }
    skv_sequence_free(base);
    skv_text_free(ids);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        (void)fputs("usage: share MODEL DOCUMENT QUESTION...\n", stderr);
        return 2;
    }
    skv_engine_options options = skv_engine_options_default();
    model m = {0};
    skv_error err;
    skv_status status = skv_engine_open(argv[1], &options, &m.engine, &err);
    if (status == SKV_OK) status = skv_vocab_open(argv[1], &m.vocab, &err);
    if (status == SKV_OK) status = answer_all(&m, argv[2], argv + 3, (size_t)argc - 3, &err);
    if (status != SKV_OK) (void)fprintf(stderr, "share: %s\n", err.text);
    skv_vocab_close(m.vocab);
    skv_engine_close(m.engine);
    return status != SKV_OK;
}
