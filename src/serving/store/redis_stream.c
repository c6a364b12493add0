/* The bytes of a connection to a store, plain or through TLS (OpenSSL): see redis_impl.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/system_sockets.h"
#include "redis_impl.h"

/* No signal where the other side has gone. */
static ssize_t send_plain(int fd, const void *data, size_t n)
{
    ssize_t done;
    do {
        done = skv_socket_send(fd, data, n);
    } while (done < 0 && errno == EINTR);
    return done;
}

static ssize_t receive_plain(int fd, void *data, size_t n)
{
    ssize_t done;
    do {
        done = recv(fd, data, n, MSG_DONTWAIT);
    } while (done < 0 && errno == EINTR);
    return done;
}

static bool would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

#ifdef SKV_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct redis_tls {
    SSL_CTX *context;
    BIO_METHOD *method; /* a socket without signals */
};

static int bio_write(BIO *bio, const char *data, int n)
{
    ssize_t done = send_plain((int)(intptr_t)BIO_get_data(bio), data, (size_t)n);
    BIO_clear_retry_flags(bio);
    if (done < 0 && would_wait()) BIO_set_retry_write(bio);
    return (int)done;
}

static int bio_read(BIO *bio, char *data, int n)
{
    ssize_t done = receive_plain((int)(intptr_t)BIO_get_data(bio), data, (size_t)n);
    BIO_clear_retry_flags(bio);
    if (done < 0 && would_wait()) BIO_set_retry_read(bio);
    return (int)done;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static skv_status fail_tls(skv_error *err, const char *what, const char *file)
{
    char text[REDIS_WHY_BYTES];
    unsigned long code = ERR_get_error();
    ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return skv_fail(err, SKV_IO, "%s: %s: %s", what, file ? file : "TLS",
                    code ? text : "no memory");
}

static skv_status load_files(SSL_CTX *context, const redis_options *o, skv_error *err)
{
    int loaded = o->ca_file ? SSL_CTX_load_verify_locations(context, o->ca_file, NULL)
                            : SSL_CTX_set_default_verify_paths(context);
    if (loaded != 1) return fail_tls(err, "cache-store-ca", o->ca_file);
    if (!o->cert_file && !o->key_file) return SKV_OK;
    SKV_REQUIRE(o->cert_file && o->key_file, err, SKV_ARGUMENT,
                "cache-store-cert and cache-store-key go together");
    if (SSL_CTX_use_certificate_chain_file(context, o->cert_file) != 1) {
        return fail_tls(err, "cache-store-cert", o->cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context, o->key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        return fail_tls(err, "cache-store-key", o->key_file);
    }
    return SKV_OK;
}

static skv_status make_context(redis_tls *tls, const redis_options *options, skv_error *err)
{
    tls->context = SSL_CTX_new(TLS_client_method());
    tls->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "store");
    if (!tls->context || !tls->method) return fail_tls(err, "cache-store", NULL);
    BIO_meth_set_write(tls->method, bio_write);
    BIO_meth_set_read(tls->method, bio_read);
    BIO_meth_set_ctrl(tls->method, bio_control);
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(tls->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return load_files(tls->context, options, err);
}

skv_status redis_tls_open(const redis_options *options, redis_tls **out, skv_error *err)
{
    redis_tls *tls = calloc(1, sizeof *tls);
    SKV_REQUIRE(tls, err, SKV_MEMORY, "cache-store: no memory");
    skv_status status = make_context(tls, options, err);
    if (status == SKV_OK) {
        *out = tls;
    } else {
        redis_tls_close(tls);
    }
    return status;
}

void redis_tls_close(redis_tls *tls)
{
    if (!tls) return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    free(tls);
}

/* The name that the certificate must have. */
static bool expect_host(SSL *ssl, const char *host)
{
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1) return true;
    ERR_clear_error();
    char name[REDIS_HOST_BYTES]; /* OpenSSL's macro drops a const */
    (void)snprintf(name, sizeof name, "%s", host);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

bool redis_stream_encrypt(redis_stream *stream, redis_tls *tls, const char *host)
{
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = ssl ? BIO_new(tls->method) : NULL;
    if (!bio || !expect_host(ssl, host)) {
        BIO_free(bio);
        SSL_free(ssl);
        return false;
    }
    BIO_set_data(bio, (void *)(intptr_t)stream->fd); // NOLINT(performance-no-int-to-ptr)
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    stream->ssl = ssl;
    return true;
}

/* After a call of OpenSSL that did not succeed. */
static int wait_or_fail(redis_stream *stream, int code)
{
    int error = SSL_get_error(stream->ssl, code);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return -1;
    stream->events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return 0;
}

int redis_stream_shake(redis_stream *stream)
{
    ERR_clear_error();
    int code = SSL_connect(stream->ssl);
    return code == 1 ? 1 : wait_or_fail(stream, code);
}

static ssize_t send_secure(redis_stream *stream, const void *data, size_t n)
{
    size_t done = 0;
    ERR_clear_error();
    int code = SSL_write_ex(stream->ssl, data, n, &done);
    return code == 1 ? (ssize_t)done : wait_or_fail(stream, code);
}

static ssize_t receive_secure(redis_stream *stream, void *data, size_t n)
{
    size_t done = 0;
    ERR_clear_error();
    int code = SSL_read_ex(stream->ssl, data, n, &done);
    return code == 1 ? (ssize_t)done : wait_or_fail(stream, code);
}

void redis_stream_why(const redis_stream *stream, char out[REDIS_WHY_BYTES])
{
    out[0] = 0;
    if (!stream->ssl) return;
    long verified = SSL_get_verify_result(stream->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    if (verified != X509_V_OK) reason = X509_verify_cert_error_string(verified);
    (void)snprintf(out, REDIS_WHY_BYTES, "%s", reason ? reason : "");
}

static void free_secure(redis_stream *stream)
{
    SSL_free(stream->ssl);
    ERR_clear_error();
}
#else
skv_status redis_tls_open(const redis_options *options, redis_tls **out, skv_error *err)
{
    (void)out;
    return skv_fail(err, SKV_UNSUPPORTED,
                    "cache-store: %s: this build has no TLS: install libssl-dev and build again",
                    options->addresses);
}

void redis_tls_close(redis_tls *tls)
{
    (void)tls;
}

bool redis_stream_encrypt(redis_stream *stream, redis_tls *tls, const char *host)
{
    (void)stream;
    (void)tls;
    (void)host;
    return false;
}

int redis_stream_shake(redis_stream *stream)
{
    (void)stream;
    return -1;
}

static ssize_t send_secure(redis_stream *stream, const void *data, size_t n)
{
    (void)stream;
    (void)data;
    (void)n;
    return -1;
}

static ssize_t receive_secure(redis_stream *stream, void *data, size_t n)
{
    (void)stream;
    (void)data;
    (void)n;
    return -1;
}

void redis_stream_why(const redis_stream *stream, char out[REDIS_WHY_BYTES])
{
    (void)stream;
    out[0] = 0;
}

static void free_secure(redis_stream *stream)
{
    (void)stream;
}
#endif

ssize_t redis_stream_send(redis_stream *stream, const void *data, size_t n)
{
    if (stream->ssl) return send_secure(stream, data, n);
    ssize_t done = send_plain(stream->fd, data, n);
    if (done >= 0 || !would_wait()) return done;
    stream->events = POLLOUT;
    return 0;
}

ssize_t redis_stream_receive(redis_stream *stream, void *data, size_t n)
{
    if (stream->ssl) return receive_secure(stream, data, n);
    ssize_t done = receive_plain(stream->fd, data, n);
    if (done > 0) return done;
    if (done == 0 || !would_wait()) return -1;
    stream->events = POLLIN;
    return 0;
}

void redis_stream_close(redis_stream *stream)
{
    if (stream->ssl) free_secure(stream);
    if (stream->fd >= 0) (void)close(stream->fd);
    *stream = (redis_stream){.fd = -1};
}
