/*
 * The smallest use of the library: opens a model, reads a prompt, prints what follows.
 *     hello MODEL [PROMPT]
 * Installed, it builds with: cc hello.c $(pkg-config --cflags --libs skv)
 */
#include <stdio.h>
#include <string.h>

#include <skv/skv.h>
#include <skv/text.h>

static bool print_token(void *user, int32_t id)
{
    const char *text = "";
    size_t n = 0;
    skv_error err;
    if (skv_text_stream_push(user, id, &text, &n, &err) != SKV_OK) return false;
    (void)fwrite(text, 1, n, stdout);
    return true;
}

static skv_status continue_text(skv_engine *engine, skv_vocab *vocab, const char *prompt,
                                skv_error *err)
{
    skv_sequence *sequence = NULL;
    skv_sampler *sampler = NULL;
    skv_text_stream *stream = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    skv_sampling greedy = skv_sampling_default();
    skv_status status = skv_vocab_encode(vocab, (skv_text_piece){prompt, strlen(prompt)},
                                         (skv_encode_options){.add_special = true}, &ids, &n, err);
    if (status == SKV_OK) status = skv_text_stream_create(vocab, false, &stream, err);
    if (status == SKV_OK) status = skv_sequence_create(engine, 0, &sequence, err);
    if (status == SKV_OK)
        status = skv_sampler_create(&greedy, skv_engine_vocab(engine), &sampler, err);
    if (status == SKV_OK) {
        skv_generation generation = {
            .max_tokens = 64, .sampler = sampler, .on_token = print_token, .user = stream};
        status = skv_generate(engine, sequence, ids, n, &generation, err);
    }
    (void)putchar('\n');
    skv_sampler_free(sampler);
    skv_sequence_free(sequence);
    skv_text_stream_free(stream);
    skv_text_free(ids);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fputs("usage: hello MODEL [PROMPT]\n", stderr);
        return 2;
    }
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    skv_vocab *vocab = NULL;
    skv_error err;
    skv_status status = skv_engine_open(argv[1], &options, &engine, &err);
    if (status == SKV_OK) status = skv_vocab_open(argv[1], &vocab, &err);
    if (status == SKV_OK) {
        status = continue_text(engine, vocab, argc > 2 ? argv[2] : "Once upon a time", &err);
    }
    if (status != SKV_OK) (void)fprintf(stderr, "hello: %s\n", err.text);
    skv_vocab_close(vocab);
    skv_engine_close(engine);
    return status != SKV_OK;
}
