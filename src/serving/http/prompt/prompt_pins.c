/*
 * Beginnings of a prompt that its client wants cached: marks (`cache_control`) in messages become
 * places in the template's text. Templates change the text of a message, so a mark reaches up to
 * where the text of the next message begins; it thereby includes the text between the two, such as
 * tools after a system message.
 */
#define _GNU_SOURCE
#include <string.h>

#include "prompt/prompt_changes.h"

enum { BYTES_A_UNIT = 16 };

static skv_text_piece trimmed(const json_t *text)
{
    static const char blanks[] = " \t\r\n";
    skv_text_piece out = {json_string_value(text), json_string_length(text)};
    while (out.n > 0 && strchr(blanks, out.text[0]) && out.text[0]) {
        out.text++;
        out.n--;
    }
    while (out.n > 0 && strchr(blanks, out.text[out.n - 1]) && out.text[out.n - 1]) out.n--;
    return out;
}

/* Beyond a request's limit the first ones stay, and the last. */
static void add_pin(rendered_text *rendered, size_t n_bytes, double seconds)
{
    if (rendered->n_pins == SKV_JOB_PINS) rendered->n_pins--;
    rendered->pins[rendered->n_pins++] = (skv_pin){.n_bytes = n_bytes, .seconds = seconds};
}

bool prompt_find_pins(skv_budget *budget, const json_t *messages, rendered_text *rendered)
{
    const char *begin = rendered->text.size > 0 ? rendered->text.data : "";
    const char *at = begin, *end = begin + rendered->text.size;
    double open = 0; /* of a mark that waits for the next message */
    size_t i;
    const json_t *message;
    rendered->n_pins = 0;
    json_array_foreach(messages, i, message)
    {
        const skv_text_piece text = trimmed(json_object_get(message, "content"));
        const char *found = text.n > 0 ? memmem(at, (size_t)(end - at), text.text, text.n) : NULL;
        const size_t n_read = text.n > 0 ? (size_t)((found ? found + text.n : end) - at) : 0;
        if (!skv_budget_work(budget, 1 + n_read / BYTES_A_UNIT)) return false;
        if (found && open > 0) {
            add_pin(rendered, (size_t)(found - begin), open);
            open = 0;
        }
        if (found) at = found + text.n;
        const double seconds = prompt_mark_seconds(json_object_get(message, "cache_control"));
        open = seconds > open ? seconds : open;
    }
    if (open > 0) add_pin(rendered, rendered->text.size, open);
    return true;
}

double prompt_mark_seconds(const json_t *mark)
{
    enum { SHORT = 300, LONG = 3600 };
    const json_t *ttl = json_object_get(mark, "ttl");
    if (!json_is_object(mark)) return 0;
    return json_is_string(ttl) && strcmp(json_string_value(ttl), "1h") == 0 ? LONG : SHORT;
}

void prompt_mark_longer(json_t *message, json_t *mark)
{
    const double before = prompt_mark_seconds(json_object_get(message, "cache_control"));
    if (prompt_mark_seconds(mark) <= before) return;
    (void)json_object_set(message, "cache_control", mark); /* without memory it is not marked */
}
