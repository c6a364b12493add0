/*
 * What a chat template does with tools, found out by rendering small conversations: a template says
 * no more of itself than its text.
 */
#include <stdio.h>
#include <string.h>

#include "request_input.h"

#define PROBE                                                                                      \
    "\"add_generation_prompt\":true,\"date_string\":\"\",\"datetime\":\"\",\"functions\":"         \
    "\"skv_probe\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"skv_probe\","        \
    "\"description\":\"\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]"

/* Ids as Mistral's templates want them, and as ours are. */
static const char short_id[] = "abcdefgh1", long_id[] = "call_0123456789abcdef";

typedef struct probed {
    const skv_vocab *vocab;
    skv_text_piece text; /* of the template */
} probed;

/* The text for these variables, to be freed; NULL: the template refuses them. */
static char *render(const probed *p, const char *vars)
{
    char *shown = NULL;
    size_t n = 0;
    const skv_render_input input = {
        .template_text = p->text, .vars = {vars, strlen(vars)}, .vocab = p->vocab};
    return skv_render(&input, &shown, &n, NULL) == SKV_OK ? shown : NULL;
}

/* A conversation with a call, which `call` has, and its result. */
static char *render_turns(const probed *p, const char *call, const char *id)
{
    char vars[1024];
    (void)snprintf(vars, sizeof vars,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                   "%s},{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":\"skv_probe\","
                   "\"content\":\"skv_result\"}],%s}",
                   call, id, PROBE);
    return render(p, vars);
}

/* Arguments are an object, as most templates want them, or a text. */
static char *render_call(const probed *p, const char *id)
{
    static const char *const arguments[] = {"{\"skv_key\":\"skv_value\"}",
                                            "\"{\\\"skv_key\\\":\\\"skv_value\\\"}\""};
    char call[512], *shown = NULL;
    for (size_t i = 0; !shown && i < 2; i++) {
        (void)snprintf(call, sizeof call,
                       "\"content\":\"\",\"tool_calls\":[{\"id\":\"%s\",\"type\":\"function\","
                       "\"function\":{\"name\":\"skv_probe\",\"arguments\":%s}}]",
                       id, arguments[i]);
        shown = render_turns(p, call, id);
    }
    return shown;
}

bool tool_template_ignores(const skv_vocab *vocab, const char *text, size_t n)
{
    const probed p = {vocab, {text, n}};
    char *shown = render(&p, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," PROBE "}");
    const bool ignores = !shown || !strstr(shown, "skv_probe");
    skv_text_free(shown);
    return ignores;
}

tool_habits tool_template_habits(const skv_vocab *vocab, const char *text, size_t n)
{
    const probed p = {vocab, {text, n}};
    tool_habits habits = {false};
    char *shown = render_call(&p, long_id);
    if (!shown) {
        shown = render_call(&p, short_id);
        habits.short_ids = shown;
    }
    habits.loses_calls = shown && !strstr(shown, "skv_value");
    habits.loses_results = shown && !strstr(shown, "skv_result");
    skv_text_free(shown);
    return habits;
}
