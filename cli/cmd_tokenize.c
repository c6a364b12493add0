/* swiftkv tokenize: text to ids, and ids to text. */
#include "common/json_out.h"
#include "runtime.h"

static int open_vocab(const cli_options *options, cli_model *model)
{
    skv_error err = {0};
    model->path = options->operands[0];
    if (cli_preset_of(model->path)) {
        return cli_fail("%s: a preset has no tokenizer", model->path);
    }
    return cli_check(skv_vocab_open(model->path, &model->vocab, &err), &err);
}

static int encode(const cli_options *options, const cli_model *model)
{
    cli_bytes text = {0};
    cli_ids ids = {0};
    int status = cli_input_text(options, &text);
    if (status == CLI_DONE) {
        status = cli_encode(model, &text, options->add_special, options->parse_special, &ids);
    }
    if (status == CLI_DONE && options->json) {
        skv_json_out json = {.stream = stdout};
        skv_json_out_open(&json, '{');
        skv_json_out_put_ids(&json, "ids", ids.at, ids.n);
        skv_json_out_close(&json, '}');
        putchar('\n');
    } else if (status == CLI_DONE) {
        for (size_t i = 0; i < ids.n; i++) {
            if (i > 0) putchar(' ');
            skv_put_integer(stdout, ids.at[i]);
        }
        putchar('\n');
    }
    cli_ids_release(&ids);
    cli_bytes_release(&text);
    return status;
}

/* The text to the byte: no newline is added. */
static int decode(const cli_options *options, const cli_model *model)
{
    cli_ids ids = {0};
    int status = cli_read_ids(options->ids_file, skv_vocab_size(model->vocab), &ids);
    if (status != CLI_DONE) return status;
    skv_error err = {0};
    char *text = NULL;
    size_t n = 0;
    status =
        cli_check(skv_vocab_decode(model->vocab, (skv_id_piece){ids.at, ids.n},
                                   (skv_decode_options){.with_special = true}, &text, &n, &err),
                  &err);
    if (status == CLI_DONE && options->json) {
        skv_json_out json = {.stream = stdout};
        skv_json_out_open(&json, '{');
        skv_json_out_key(&json, "text");
        skv_json_out_text(&json, text, n);
        skv_json_out_close(&json, '}');
        putchar('\n');
    } else if (status == CLI_DONE) {
        fwrite(text, 1, n, stdout);
    }
    skv_text_free(text);
    cli_ids_release(&ids);
    return status;
}

int cli_run_tokenize(const cli_options *options)
{
    cli_model model = {0};
    int status = open_vocab(options, &model);
    if (status == CLI_DONE) {
        status = options->decode ? decode(options, &model) : encode(options, &model);
    }
    cli_model_close(&model);
    return status;
}
