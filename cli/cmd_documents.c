/*
 * swiftkv documents: generated training and evaluation documents as lines of JSON.
 * swiftkv vocab: learns a byte-level BPE and writes it as the tokenizer of a model folder.
 */
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "runtime.h"
#include "skv/documents.h"
#include "skv/text.h"
#include "skv/vocab_train.h"

static int print_all(const cli_options *options, const skv_documents *documents)
{
    skv_error err = {0};
    const size_t count = options->count != CLI_NOT_GIVEN ? options->count : 10;
    int status = CLI_DONE;
    cli_progress progress;
    cli_progress_begin(&progress, "documents");
    progress.terminal = progress.terminal && isatty(STDOUT_FILENO) == 0; /* they show themselves */
    for (uint64_t i = 0; i < count && status == CLI_DONE; i++) {
        char *line;
        size_t n;
        status = cli_check(
            skv_documents_json(documents, options->first + i, options->evaluation, &line, &n, &err),
            &err);
        if (status != CLI_DONE) break;
        if (fwrite(line, 1, n, stdout) != n || putchar('\n') == EOF) {
            status = cli_fail("standard output: cannot write");
        }
        skv_text_free(line);
        cli_progress_share(&progress, (double)(i + 1) / (double)count);
    }
    cli_progress_end(&progress);
    return status;
}

int cli_run_documents(const cli_options *options)
{
    skv_documents_options how = skv_documents_default();
    how.seed = options->sampling.seed;
    how.tasks = options->tasks;
    how.held_out = options->held_out || options->evaluation;
    how.vocab = options->vocab;
    how.prose = options->prose;
    if (options->tokens_min != 0) how.tokens_min = options->tokens_min;
    if (options->tokens_max != 0) how.tokens_max = options->tokens_max;
    if (options->questions_max != 0) how.questions_max = options->questions_max;
    if (options->tokens_max == 0 && how.tokens_max < how.tokens_min)
        how.tokens_max = how.tokens_min;
    if (options->tokens_min == 0 && how.tokens_min > how.tokens_max)
        how.tokens_min = how.tokens_max;
    skv_error err = {0};
    skv_documents *documents = NULL;
    int status = cli_check(skv_documents_open(&how, &documents, &err), &err);
    if (status == CLI_DONE) status = print_all(options, documents);
    skv_documents_close(documents);
    return status;
}

static void show(void *user, const char *what, double share)
{
    cli_progress *progress = user;
    if (!progress->what || strcmp(progress->what, what) != 0) {
        cli_progress_end(progress);
        cli_progress_begin(progress, what);
    }
    cli_progress_share(progress, share);
}

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
    cli_progress progress = {.what = NULL};
    how.on_progress = show;
    how.user = &progress;
    skv_vocab_train_report report;
    skv_error err = {0};
    const char *out = options->operands[0];
    const int status = cli_check(skv_vocab_train(out, &how, &report, &err), &err);
    cli_progress_end(&progress);
    if (status != CLI_DONE) return status;
    printf(
        "%s: %zu entries, %zu merges from %.1f MB of text with %zu different words, %.2f bytes a "
        "token\n",
        out, report.size, report.merges, (double)report.bytes / 1e6, report.words,
        report.bytes_per_token);
    return CLI_DONE;
}
