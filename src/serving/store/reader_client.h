/*
 * Another server that reads prompts for this one (skv_prompt_readers of skv/serve.h): HTTP/1.1 to
 * `swiftkv serve --role read`, or to a proxy in front of several.
 *
 *     reader_client.c     the thread, the exchanges under way, and when the reader is left alone
 *     reader_exchange.c   one exchange: its request, and the reading of every byte of the response
 *
 * A prompt is POSTed to /read with the client's own key. The response has a line of JSON for each
 * block that has reached the store, and signs of life in between. It is trusted only to say when a
 * block can be fetched: the name must be the one that this server expects, and the block is checked
 * when it comes from the store. Lines, bytes and the time between them are bounded. A
 * reader that does not answer gets no prompts until it has answered GET /health, which is tried
 * beside the work.
 */
#ifndef SKV_STORE_READER_CLIENT_H
#define SKV_STORE_READER_CLIENT_H

#include "skv/serve.h"

typedef struct reader_options {
    const char *url; /* "http://HOST[:PORT]" */
    size_t above;    /* see skv_prompt_readers */
    double seconds;  /* without a new block or a sign of life */
} reader_options;

typedef struct reader_client reader_client;

/** Reads the address; opens no connection. */
skv_status reader_client_open(const reader_options *options, reader_client **out, skv_error *err);
/** After every scheduler that uses it was freed; NULL is allowed. */
void reader_client_close(reader_client *client);
/** Valid until reader_client_close. */
skv_prompt_readers reader_client_table(reader_client *client);

#endif
