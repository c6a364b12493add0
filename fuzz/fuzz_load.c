/* What the load generator reads: traces, and event streams in pieces of the length that the second
 * byte tells. The first byte says which. */
#include "fuzz.h"

#include <stdlib.h>

#include "load.h"
#include "stream_answer.h"

static void read_trace(const uint8_t *data, size_t size)
{
    char error[LOAD_ERROR_MAX] = "";
    load_trace trace = {0};
    FILE *file = fmemopen((void *)(uintptr_t)data, size, "r");
    if (!file) return;
    const bool ok = load_trace_read_stream(file, "trace", SIZE_MAX, &trace, error);
    if (ok ? trace.n == 0 : error[0] == 0) abort();
    for (size_t i = 0; i < trace.n; i++) {
        const load_trace_row *row = &trace.rows[i];
        if (row->n_prompt == 0 || row->n_output == 0 || row->at_s < 0) abort();
        if (row->n_blocks > trace.n_blocks - row->first_block) abort();
    }
    load_trace_release(&trace);
    (void)fclose(file);
}

static void read_stream(const uint8_t *data, size_t size)
{
    stream_answer answer = {0};
    const size_t piece = (size_t)data[0] + 1;
    double now_s = 0;
    stream_answer_begin(&answer, now_s);
    for (size_t at = 1; at < size; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        if (!stream_answer_feed(&answer, (const char *)data + at, n, now_s += 0.01)) break;
    }
    if (stream_answer_finish(&answer) == LOAD_DONE && answer.last_s < answer.first_s) abort();
    stream_answer_release(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    if (data[0] % 2 == 0) {
        read_trace(data + 1, size - 1);
    } else {
        read_stream(data + 1, size - 1);
    }
    return 0;
}
