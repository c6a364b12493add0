/* A history with calls, as a request brings it: read, put in order and rendered by the server's
 * own code, and its texts read as a model's answers. See hostile_run.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "hostile_run.h"
#include "request/request_input.h"
#include "skv/reply.h"
#include "skv/text.h"
#include "state/server_impl.h"

enum { REPLY_STEP = 7 }; /* bytes: about a token */

static char template_text[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.tool_calls or [] %}"
    "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments|tojson }}}\n</tool_call>{% endfor %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}";

/* For request_budget.c: a server that goes on. */
server_state server_get_state(http_server *server)
{
    (void)server;
    return SERVER_READY;
}

/* And no request beside this one. */
bool exchange_stopped(void *ex)
{
    (void)ex;
    return false;
}

bool memory_wait(exchange *ex, memory_turn turn, memory_try_fn *tries, void *user)
{
    (void)ex;
    (void)turn;
    return tries(user, true);
}

size_t memory_held(const exchange *ex)
{
    return ex->n_held;
}

/* The answer that a client sees, as a status of the library. */
static void refuse(hostile_job *job, const api_error *error)
{
    skv_error err = {error->status == 400 ? SKV_RANGE : SKV_MEMORY, ""};
    (void)snprintf(err.text, sizeof err.text, "%.*s", (int)sizeof err.text - 1, error->message);
    hostile_judge(job, err.status, &err);
}

/* The messages as templates want them; NULL: refused. */
static char *read_messages(hostile_job *job, char *body, size_t n)
{
    http_server server = {.listen_fd = -1};
    server_model model = {.template_text = template_text};
    skv_budget budget;
    skv_budget_init(&budget, NULL);
    exchange ex = {
        .server = &server, .model = &model, .body = body, .n_body = n, .budget = &budget};
    api_error error = {0};
    json_t *json = NULL;
    char *text = NULL;
    bool ok = json_body_parse(&ex, &json, &error);
    json_t *messages = json_object_get(json, "messages");
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (json_is_object(message)) ok = tool_message_tidy(&ex, message, i, &error);
    }
    if (ok) text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (!ok) refuse(job, &error);
    return text;
}

static void render(hostile_job *job, const char *vars)
{
    skv_error err = {0};
    char *text = NULL;
    size_t n = 0;
    const skv_render_input input = {.template_text = {template_text, sizeof template_text - 1},
                                    .vars = {vars, strlen(vars)}};
    skv_status status = skv_render(&input, &text, &n, &err);
    hostile_judge(job, status, &err);
    skv_text_free(text);
}

static void tell(void *user, const skv_reply_piece *piece)
{
    *(size_t *)user += piece->n;
}

/* The same bytes as an answer of the model. */
static void read_reply(hostile_job *job)
{
    size_t n_told = 0, n = job->c->text.size;
    const skv_reply_options options = {
        .format = {SKV_CALLS_HERMES, true}, .tell = tell, .user = &n_told};
    skv_reply *reply = NULL;
    skv_error err = {0};
    skv_status status = skv_reply_create(&options, &reply, &err);
    static const char begin[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
    if (status == SKV_OK) status = skv_reply_push(reply, begin, sizeof begin - 1, &err);
    for (size_t i = 0; i < n && status == SKV_OK; i += REPLY_STEP) {
        size_t step = n - i < REPLY_STEP ? n - i : REPLY_STEP;
        status = skv_reply_push(reply, job->c->text.data + i, step, &err);
    }
    if (status == SKV_OK) status = skv_reply_finish(reply, &err);
    if (status != SKV_OK)
        hostile_fault(job, "reply: status \"%s\": %s", skv_status_name(status), err.text);
    skv_reply_free(reply);
}

void hostile_run_history(hostile_job *job)
{
    skv_buf body;
    skv_buf_init(&body, HOSTILE_HISTORY_MAX + 100);
    uint64_t begun = hostile_cpu_ns();
    (void)skv_buf_text(&body, "{\"messages\":");
    (void)skv_buf_append(&body, job->c->text.data, job->c->text.size);
    (void)skv_buf_text(&body, "}");
    char *messages = read_messages(job, body.data, body.size);
    skv_buf_release(&body);
    if (messages) render(job, messages);
    free(messages);
    job->out->ns = hostile_cpu_ns() - begun;
    read_reply(job);
}
