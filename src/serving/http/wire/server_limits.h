/*
 * The limits of the server that are numbers in the code, in one place. Those with an option are
 * in server_options, with their defaults in cli/option_table.c; docs/reference/limits.md explains
 * all.
 */
#ifndef SKV_SERVER_SERVER_LIMITS_H
#define SKV_SERVER_SERVER_LIMITS_H

enum {
    /* ---- a connection (http_front.c) ---- */
    LIMIT_CONNECTION_BYTES = 48 << 10, /* its buffers: a longer header is refused with 431 */
    LIMIT_COST_BYTES = 16 << 10,   /* the touched part of buffers and stack: counts in --memory */
    LIMIT_HEADER_BYTES = 32 << 10, /* names and values of a header: 431 */
    LIMIT_HEADER_FIELDS = 100,     /* 431 */
    LIMIT_TRAILER_BYTES = 8 << 10, /* after the last chunk of a body: 400 */
    LIMIT_BACKLOG = 511,           /* connections that the system holds until we take them */
    LIMIT_SPARE_FILES = 16, /* descriptors kept for files, when --connections is cut to fit */
    LIMIT_QUIET_MS = 1000,  /* a client silent for this long loses its place if all are taken */
    LIMIT_ACCEPT_PAUSE_MS = 100,     /* after a connection could not be taken */
    LIMIT_BODY_ROOM_BYTES = 4 << 10, /* of the first piece of a body */
    LIMIT_LINGER_MS = 1000,          /* reading the remaining bytes of a client that was refused */

    /* ---- deadlines without an option (peers.c) ---- */
    LIMIT_IDLE_SECONDS = 60,          /* between two requests of a connection */
    LIMIT_BODY_BYTES_A_SECOND = 1024, /* slower bodies are cut off ... */
    LIMIT_BODY_SLOW_SECONDS = 10,     /* ... after this long */
    /* Of the written bytes a client takes so much a second, and all that is written at once
     * within so many seconds. It is cut off once writes have waited for it for --stall-timeout
     * (exchange.c). */
    LIMIT_READ_BYTES_A_SECOND = 1024,
    LIMIT_READ_SECONDS = 600,

    /* ---- the end (server.c): --shutdown-timeout is for requests ---- */
    LIMIT_FLUSH_SECONDS = 20, /* then for writing --cache-dir; not longer than requests had */
    LIMIT_STOP_SECONDS = 5,   /* then for everything else: a request that has not ended by then
                               * is cut off */

    /* ---- grammars (constrain.c) ---- */
    LIMIT_GRAMMARS_AT_ONCE = 2,     /* compiled at one time (compile_slots.c) */
    LIMIT_GRAMMAR_WAIT_SECONDS = 5, /* a request waits this long for its turn, then 503 */

    /* ---- the bounds of reading one request (exchange.c): 400 ---- */
    LIMIT_REQUEST_DEPTH = 64, /* levels of JSON, grammars and templates: as many as half of a
                               * connection's stack can take */

    /* ---- fields of a request (prompt_input.c, tool_request.c, request_params.c): 400 ---- */
    PROMPTS_MAX = 1024, /* of one request */
    TOOLS_MAX = 128,
    TOOL_NAME_MAX = 64,     /* bytes */
    PARAM_STOPS_MAX = 16,   /* stop texts ... */
    PARAM_STOP_BYTES = 256, /* ... of at most so many bytes */
    PARAM_STOP_IDS_MAX = 64,
    PARAM_BIASES_MAX = 1024, /* members of logit_bias */

    /* ---- files of slots (slot_files.c): 400 ---- */
    LIMIT_SLOT_FILES = 4096, /* in --slot-save-path; saving one looks at all */

    /* ---- answers that no client reads ---- */
    LIMIT_STATUS_CLIENT_LEFT = 499,    /* as proxies count it; only a client that shut one side
                                        * down sees it */
    LIMIT_LOADING_RETRY_SECONDS = 2,   /* Retry-After while the model loads */
    LIMIT_ELSEWHERE_RETRY_SECONDS = 5, /* Retry-After of a server that ends */

    /* ---- memory that requests share (--memory, server.c) ---- */
    LIMIT_MEMORY_WAIT_SECONDS = 10, /* a request waits this long for room, then 503 ... */
    LIMIT_SMALL_BYTES = 256 << 10,  /* a request this small takes any room that is left */
    LIMIT_TRIM_BYTES = 4 << 20,     /* after a larger request, free pages go back to the system */
    LIMIT_WHOLE_BYTES = 1 << 20,    /* larger answers are sent in pieces: "chunked" */
    LIMIT_TEXT_BYTES = 1 << 30,     /* of a text that is not counted: heads, errors, the log */
    LIMIT_MEMORY_RETRY_SECONDS = 2  /* ... with this Retry-After */
};

/* A busy model leaves for one that is waited for after so long, when its requests are done; and
 * how often that, and the cause of a request's wait, is looked at. */
#define LIMIT_MODEL_STAY_SECONDS 10.0
#define LIMIT_MODEL_LOOK_SECONDS 0.1

#endif
