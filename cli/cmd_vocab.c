/* swiftkv vocab: learns a byte-level BPE and writes it as the tokenizer of a model folder. */
#include "progress.h"
#include "runtime.h"
#include "skv/documents.h"
#include "skv/vocab_train.h"

int cli_run_vocab(const cli_options *options)
{
    skv_documents_options documents = skv_documents_default();
    documents.seed = options->sampling.seed;
    documents.tasks = options->tasks;
    documents.prose = options->prose;
    if (options->tokens_min != 0) documents.tokens_min = options->tokens_min;
    if (options->tokens_max != 0) documents.tokens_max = options->tokens_max;
    skv_vocab_train_options how = skv_vocab_train_default();
    how.documents = &documents;
    if (options->count != CLI_NOT_GIVEN) how.n_documents = options->count;
    if (options->vocab_size != 0) how.size = options->vocab_size;
    how.files = options->data.at;
    how.n_files = options->data.n;
    skv_vocab_train_report report;
    skv_error err = {0};
    const char *out = options->operands[0];
    const int status = cli_check(skv_vocab_train(out, &how, &report, &err), &err);
    if (status != CLI_DONE) return status;
    printf(
        "%s: %zu entries, %zu merges from %.1f MB of text with %zu different words, %.2f bytes a "
        "token\n",
        out, report.size, report.merges, (double)report.bytes / 1e6, report.words,
        report.bytes_per_token);
    return CLI_DONE;
}
