/* How tokens are drawn: see sampling_fields.h. */
#include "common/sampling_fields.h"

#include <assert.h>

#define AT(member) offsetof(skv_sampling, member)

static const skv_field fields[] = {
    {"temperature", "T", SKV_FIELD_NUMBER, AT(temperature), 0, 100, .initial = "0",
     .option = "--temp", .help = "temperature; 0: the most likely token"},
    {"top_k", "K", SKV_FIELD_SIZE, AT(top_k), -1, 1e9, .initial = "0", .option = "--top-k",
     .help = "sample from the K most likely tokens; 0 or -1: all"},
    {"top_p", "P", SKV_FIELD_NUMBER, AT(top_p), 0, 1, .initial = "1", .option = "--top-p",
     .help = "sample from the fewest tokens with probability P together; 0: one"},
    {"min_p", "P", SKV_FIELD_NUMBER, AT(min_p), 0, 1, .open_max = true, .initial = "0",
     .option = "--min-p",
     .help = "sample from tokens with at least this share of the best one's probability"},
    {"repetition_penalty", "X", SKV_FIELD_NUMBER, AT(repetition_penalty), 0, 10, .open_min = true,
     .initial = "1", .option = "--repeat-penalty",
     .help = "divides the logits of tokens that occurred before"},
    {"presence_penalty", "X", SKV_FIELD_NUMBER, AT(presence_penalty), -2, 2, .initial = "0",
     .option = "--presence-penalty", .help = "subtracted once from tokens generated before"},
    {"frequency_penalty", "X", SKV_FIELD_NUMBER, AT(frequency_penalty), -2, 2, .initial = "0",
     .option = "--frequency-penalty",
     .help = "subtracted for each time that a token was generated"},
    {"repeat_last_n", "N", SKV_FIELD_INTEGER, AT(penalty_window), -1, SKV_PENALTY_WINDOW_MAX,
     .initial = "-1", .option = "--repeat-last-n",
     .help = "penalties look at the last N tokens; -1: at all of them"},
    {"seed", "S", SKV_FIELD_SEED, AT(seed), .initial = "0", .option = "--seed",
     .help = "the same seed and number of threads give the same tokens"},
};

const skv_field *skv_sampling_field(size_t i)
{
    return i < sizeof fields / sizeof fields[0] ? &fields[i] : NULL;
}

skv_sampling skv_sampling_default(void)
{
    skv_sampling out = {.seed = 0};
    for (size_t i = 0; skv_sampling_field(i); i++) {
        const skv_status status = skv_field_parse(&fields[i], fields[i].initial, &out, NULL);
        assert(status == SKV_OK);
        (void)status;
    }
    return out;
}

skv_status skv_sampling_check(const skv_sampling *sampling, skv_error *err)
{
    for (size_t i = 0; skv_sampling_field(i); i++) {
        SKV_TRY(skv_field_check(&fields[i], sampling, err));
    }
    return SKV_OK;
}
