/*
 * Finds out how a chat template treats tools by rendering small conversations: a template reveals
 * nothing of itself but its text.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request/request_input.h"
#include "skv/reply.h"

#define PROBE                                                                                      \
    "\"add_generation_prompt\":true,\"date_string\":\"\",\"datetime\":\"\",\"functions\":"         \
    "\"skv_probe\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"skv_probe\","        \
    "\"description\":\"\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]"

/* Ids as Mistral's templates want them, and as ours are; a second one. */
static const char short_id[] = "abcdefgh1", long_id[] = "call_0123456789abcdef";
static const char other_id[] = "abcdefgh2";

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
    char vars[2048];
    (void)snprintf(
        vars, sizeof vars,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"skv_question\"},{\"role\":\"assistant\","
        "%s},{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":\"skv_probe\","
        "\"content\":\"skv_result\"}],%s}",
        call, id, PROBE);
    return render(p, vars);
}

#define ONE_CALL                                                                                   \
    "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"skv_probe\",\"arguments\":%s}}"

/* Arguments are an object, as most templates want them, or a text. */
static char *render_call(const probed *p, const char *id)
{
    static const char *const arguments[] = {"{\"skv_key\":\"skv_value\"}",
                                            "\"{\\\"skv_key\\\":\\\"skv_value\\\"}\""};
    char call[512], *shown = NULL;
    for (size_t i = 0; !shown && i < 2; i++) {
        (void)snprintf(call, sizeof call, "\"content\":\"\",\"tool_calls\":[" ONE_CALL "]", id,
                       arguments[i]);
        shown = render_turns(p, call, id);
    }
    return shown;
}

/* Whether the second of two calls is written. */
static bool shows_second(const probed *p, const char *id)
{
    static const char *const arguments[][2] = {
        {"{\"skv_key\":\"skv_value\"}", "{\"skv_key\":\"skv_second\"}"},
        {"\"{\\\"skv_key\\\":1}\"", "\"{\\\"skv_key\\\":\\\"skv_second\\\"}\""}};
    char calls[1024];
    bool shows = false;
    for (size_t i = 0; !shows && i < 2; i++) {
        (void)snprintf(calls, sizeof calls,
                       "\"content\":\"\",\"tool_calls\":[" ONE_CALL "," ONE_CALL "]", id,
                       arguments[i][0], other_id, arguments[i][1]);
        char *shown = render_turns(p, calls, id);
        shows = shown && strstr(shown, "skv_second");
        skv_text_free(shown);
    }
    return shows;
}

/* Whether a result at the beginning, as clients leave it that cut long histories, is not written.
 * A template that refuses it is asked again with the result as a text. */
static bool loses_orphans(const probed *p, const char *id)
{
    char vars[1024];
    (void)snprintf(vars, sizeof vars,
                   "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":"
                   "\"skv_probe\",\"content\":\"skv_result\"},{\"role\":\"assistant\","
                   "\"content\":\"x\"},{\"role\":\"user\",\"content\":\"x\"}],%s}",
                   id, PROBE);
    char *shown = render(p, vars);
    const bool loses = shown && !strstr(shown, "skv_result");
    skv_text_free(shown);
    return loses;
}

bool tool_template_ignores(const skv_vocab *vocab, const char *text, size_t n)
{
    const probed p = {vocab, {text, n}};
    char *shown = render(&p, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," PROBE "}");
    const bool ignores = !shown || !strstr(shown, "skv_probe");
    skv_text_free(shown);
    return ignores;
}

bool tool_template_knows_developer(const skv_vocab *vocab, const char *text, size_t n)
{
    const probed p = {vocab, {text, n}};
    if (!strstr(text, "developer")) return false; /* any role is written as it is named */
    char *shown = render(&p, "{\"messages\":[{\"role\":\"system\",\"content\":\"skv_system\"},"
                             "{\"role\":\"developer\",\"content\":\"skv_developer\"},"
                             "{\"role\":\"user\",\"content\":\"x\"}]," PROBE "}");
    const bool knows = shown && strstr(shown, "skv_system") && strstr(shown, "skv_developer");
    skv_text_free(shown);
    return knows;
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
    habits.loses_orphans = shown && loses_orphans(&p, habits.short_ids ? short_id : long_id);
    habits.one_call =
        shown && !habits.loses_calls && !shows_second(&p, habits.short_ids ? short_id : long_id);
    skv_text_free(shown);
    return habits;
}

/* ---- how much it lets a model think ---- */

/* From little to much. */
static const char *const effort_words[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
enum { N_EFFORTS = sizeof effort_words / sizeof effort_words[0] };

static const char *effort_var(const char *text)
{
    static const char *const names[] = {"reasoning_effort", "thinking_effort",
                                        "reasoning_strength"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strstr(text, names[i])) return names[i];
    }
    return names[0];
}

/* Whether the template renders a question with this word; NULL: without one. */
static bool takes_effort(const probed *p, const char *name, const char *word)
{
    char vars[1024], effort[64] = "";
    if (word) (void)snprintf(effort, sizeof effort, "\"%s\":\"%s\",", name, word);
    (void)snprintf(vars, sizeof vars,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                   "\"enable_thinking\":true,%s%s}",
                   effort, PROBE);
    char *shown = render(p, vars);
    skv_text_free(shown);
    return shown;
}

unsigned tool_template_efforts(const skv_vocab *vocab, const char *text, size_t n)
{
    const probed p = {vocab, {text, n}};
    const char *name = effort_var(text);
    unsigned efforts = 0;
    if (!strstr(text, name) || !takes_effort(&p, name, NULL)) return EFFORTS_ALL;
    for (unsigned i = 0; i < N_EFFORTS; i++) {
        if (takes_effort(&p, name, effort_words[i])) efforts |= 1U << i;
    }
    return efforts;
}

/* The word that the template takes instead of this one, the nearest, the greater of two; the word
 * itself where it is taken or not known; NULL: it takes none. */
static const char *take_effort(unsigned efforts, const char *word)
{
    size_t at = 0;
    while (at < N_EFFORTS && strcmp(word, effort_words[at]) != 0) at++;
    if (at == N_EFFORTS) return word;
    for (size_t away = 0; away < N_EFFORTS; away++) {
        const size_t more = at + away;
        if (more < N_EFFORTS && (efforts >> more & 1U)) return effort_words[more];
        if (away <= at && (efforts >> (at - away) & 1U)) return effort_words[at - away];
    }
    return NULL;
}

/* How much the model shall think. Agents send words that the user never chose. */
static bool name_effort(const exchange *ex, json_t *vars, api_error *error)
{
    static const char name[] = "reasoning_effort";
    const char *asked = json_string_value(json_object_get(vars, name));
    if (!asked) return true;
    const char *own = effort_var(ex->model->template_text);
    const char *word = take_effort(ex->model->efforts, asked);
    if (!word || strcmp(word, asked) != 0) ex->changes->effort = word ? word : "default";
    if (!word) return json_object_del(vars, name) == 0;
    const bool has = strcmp(own, name) != 0 && json_object_get(vars, own);
    return has || json_put_new(vars, own, json_string(word), error);
}

/* What most templates call enable_thinking, some call `thinking`. */
bool tool_template_name_vars(const exchange *ex, json_t *vars, api_error *error)
{
    const json_t *thinks = json_object_get(vars, "enable_thinking");
    if (json_is_boolean(thinks) && !json_object_get(vars, "thinking") &&
        !json_put_new(vars, "thinking", json_boolean(json_is_true(thinks)), error)) {
        return false;
    }
    return name_effort(ex, vars, error);
}

/* ---- around answers ---- */

static const char answer_mark[] = "skv_answer", thought_mark[] = "skv_thought";

/* The prompt of a question, to be freed; NULL: the template refuses it. */
static char *render_prompt(const probed *p)
{
    return render(p, "{\"messages\":[{\"role\":\"user\",\"content\":\"skv_question\"}],"
                     "\"add_generation_prompt\":true}");
}

/* The question with an answer, which may have a thought. */
static char *render_answer(const probed *p, const char *thought)
{
    char vars[512];
    (void)snprintf(vars, sizeof vars,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"skv_question\"},{\"role\":"
                   "\"assistant\",\"content\":\"skv_answer\"%s}],\"add_generation_prompt\":false}",
                   thought);
    return render(p, vars);
}

#define WITH_THOUGHT ",\"reasoning_content\":\"skv_thought\",\"reasoning\":\"skv_thought\""

skv_thought_marks tool_template_thoughts(const skv_vocab *vocab, const char *text, size_t n)
{
    const probed p = {vocab, {text, n}};
    char *shown = render_answer(&p, WITH_THOUGHT);
    const skv_thought_marks marks =
        shown ? skv_reply_thought_marks(shown, thought_mark) : SKV_THOUGHTS_NONE;
    skv_text_free(shown);
    return marks;
}

enum { FRAME_MAX = 128 }; /* bytes of marks: a longer text is another turn */

/* A copy of from[0..to); NULL where there is nothing. */
static char *copy_between(const char *from, const char *to)
{
    const size_t n = (size_t)(to - from);
    char *copy = n > 0 && n <= FRAME_MAX ? malloc(n + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, from, n);
    copy[n] = 0;
    return copy;
}

static bool is_blank(const char *from, const char *to)
{
    while (from < to && strchr(" \n\r\t", *from)) from++;
    return from == to;
}

/* Where text[from..to) goes on after the mark that ends a thought, if it has one; blanks are
 * that mark's. */
static const char *skip_thought(const char *from, const char *to, skv_thought_marks thinks)
{
    const char *end = skv_thought_marks_end(thinks);
    const char *at = end ? strstr(from, end) : NULL;
    if (!at || at >= to) return from;
    at += strlen(end);
    return is_blank(at, to) ? to : at;
}

/* The text between the prompt and the answer. */
static char *find_lead(const char *shown, const char *prompt, skv_thought_marks thinks)
{
    const size_t n = prompt ? strlen(prompt) : 0;
    if (!prompt || strncmp(shown, prompt, n) != 0) return NULL;
    const char *answer = strstr(shown + n, answer_mark);
    return answer ? copy_between(skip_thought(shown + n, answer, thinks), answer) : NULL;
}

/* The text between the end mark of a thought and the answer. */
static char *find_behind(const char *shown, skv_thought_marks thinks)
{
    const char *thought = strstr(shown, thought_mark);
    const char *answer = thought ? strstr(thought, answer_mark) : NULL;
    if (!answer) return NULL;
    const char *from = thought + sizeof thought_mark - 1;
    const char *behind = skip_thought(from, answer, thinks);
    return behind > from ? copy_between(behind, answer) : NULL;
}

/* The text after the answer, up to the last mark, which ends it; and the mark that ends thoughts
 * where it ends answers too. */
static char *find_tail(const char *shown, skv_thought_marks thinks)
{
    const char *answer = strstr(shown, answer_mark), *end = skv_thought_marks_end(thinks);
    const char *from = answer ? answer + sizeof answer_mark - 1 : NULL;
    const char *last = from ? strrchr(from, '<') : NULL;
    if (!last) return NULL;
    if (end && strncmp(from, end, strlen(end)) == 0) return copy_between(from, from + strlen(end));
    return is_blank(from, last) ? NULL : copy_between(from, last);
}

answer_frame tool_template_frame(const skv_vocab *vocab, const char *text, size_t n,
                                 skv_thought_marks thinks)
{
    const probed p = {vocab, {text, n}};
    answer_frame frame = {.lead = NULL};
    char *prompt = render_prompt(&p), *shown = render_answer(&p, ""),
         *thinking = render_answer(&p, WITH_THOUGHT);
    if (shown) frame.lead = find_lead(shown, prompt, thinks);
    if (shown) frame.tail = find_tail(shown, thinks);
    if (thinking) frame.behind = find_behind(thinking, thinks);
    skv_text_free(prompt);
    skv_text_free(shown);
    skv_text_free(thinking);
    return frame;
}

void answer_frame_release(answer_frame *frame)
{
    free(frame->lead);
    free(frame->behind);
    free(frame->tail);
    *frame = (answer_frame){.lead = NULL};
}

/* ---- the form of its calls ---- */

typedef struct read_call {
    bool named, ended, bad;
    char arguments[64]; /* without blanks */
    size_t n, n_text;   /* bytes of text around it */
} read_call;

static void take_piece(void *user, const skv_reply_piece *piece)
{
    static const char name[] = "skv_probe";
    read_call *call = user;
    switch (piece->kind) {
    case SKV_REPLY_CALL:
        call->named = piece->n == sizeof name - 1 && memcmp(piece->text, name, piece->n) == 0;
        break;
    case SKV_REPLY_ARGUMENTS:
        for (size_t i = 0; i < piece->n && call->n + 1 < sizeof call->arguments; i++) {
            if (strchr(" \n", piece->text[i])) continue;
            call->arguments[call->n++] = piece->text[i];
        }
        break;
    case SKV_REPLY_CALL_END: call->ended = true; break;
    case SKV_REPLY_CALL_BAD: call->bad = true; break;
    case SKV_REPLY_TEXT: call->n_text += piece->n; break;
    case SKV_REPLY_THOUGHT:
    case SKV_REPLY_CALL_ID: break;
    }
}

/* Whether the form's reader finds the call of render_call in a text; *n_text: what else it finds.
 */
static bool reads(skv_call_syntax calls, const char *text, size_t *n_text)
{
    static const char *const names[] = {"skv_probe"};
    read_call call = {0};
    skv_reply *reply = NULL;
    const skv_reply_options options = {.format = {calls, SKV_THOUGHTS_NONE},
                                       .names = names,
                                       .n_names = 1,
                                       .tell = take_piece,
                                       .user = &call};
    skv_status status = skv_reply_create(&options, &reply, NULL);
    if (status == SKV_OK) status = skv_reply_push(reply, text, strlen(text), NULL);
    if (status == SKV_OK) status = skv_reply_finish(reply, NULL);
    skv_reply_free(reply);
    *n_text = call.n_text;
    return status == SKV_OK && call.named && call.ended && !call.bad &&
           strcmp(call.arguments, "{\"skv_key\":\"skv_value\"}") == 0;
}

/* A reader that does without some marks finds the calls of a related form too, but takes their
 * other marks for text. */
skv_call_syntax tool_template_calls(const skv_vocab *vocab, const char *text, size_t n,
                                    skv_call_syntax signs)
{
    const probed p = {vocab, {text, n}};
    skv_call_syntax found = signs;
    char *shown = render_call(&p, short_id);
    const char *from = shown ? strstr(shown, "skv_question") : NULL;
    if (from && strstr(from, "skv_value")) {
        size_t least = SIZE_MAX, n_text;
        if (signs != SKV_CALLS_NONE && reads(signs, from, &n_text)) least = n_text;
        for (int i = SKV_CALLS_NONE + 1; i < SKV_CALLS_COUNT; i++) {
            if (!reads((skv_call_syntax)i, from, &n_text) || n_text >= least) continue;
            found = (skv_call_syntax)i;
            least = n_text;
        }
    }
    skv_text_free(shown);
    return found;
}
