/*
 * Weights on their way to the device: two pieces of pinned memory, of which the host fills one
 * while the device reads the other. Like everything of a device, errors are kept by it.
 */
#ifndef SKV_BACKEND_CUDA_UPLOAD_H
#define SKV_BACKEND_CUDA_UPLOAD_H

#include "backend/cuda/cuda_device.h"

enum { SKV_CUDA_PIECE_BYTES = 1024 * 1024, SKV_CUDA_PIECES = 2 };

typedef struct skv_cuda_upload {
    skv_cuda_device *device;                /* borrowed */
    unsigned char *pieces[SKV_CUDA_PIECES]; /* owned; so are: */
    skv_cu_event read[SKV_CUDA_PIECES];     /* the device has read the piece */
    size_t i;                               /* which one is the host's */
} skv_cuda_upload;

SKV_MUST_CHECK skv_status skv_cuda_upload_open(skv_cuda_upload *upload, skv_cuda_device *device,
                                               skv_error *err);
/** Also of one that could not be opened. */
void skv_cuda_upload_close(skv_cuda_upload *upload);

/** SKV_CUDA_PIECE_BYTES for the host to fill, when the device has read what was there. */
unsigned char *skv_cuda_upload_piece(skv_cuda_upload *upload);
/** The device's memory at `to` becomes n_bytes of the piece, from byte `at` on: later. */
void skv_cuda_upload_send(skv_cuda_upload *upload, void *to, size_t at, size_t n_bytes);
/** All of the piece has been sent. */
void skv_cuda_upload_turn(skv_cuda_upload *upload);

#endif
