#include "backend/cuda/cuda_upload.h"

#include <assert.h>

static skv_status open_pieces(skv_cuda_upload *u, skv_error *err)
{
    for (size_t i = 0; i < SKV_CUDA_PIECES; i++) {
        void *at = NULL;
        SKV_TRY(skv_cuda_host_new(u->device, SKV_CUDA_PIECE_BYTES, &at, err));
        u->pieces[i] = at;
        SKV_TRY(skv_cuda_event_new(u->device, &u->read[i], err));
    }
    return SKV_OK;
}

skv_status skv_cuda_upload_open(skv_cuda_upload *upload, skv_cuda_device *device, skv_error *err)
{
    *upload = (skv_cuda_upload){.device = device};
    const skv_status status = open_pieces(upload, err);
    if (status != SKV_OK) skv_cuda_upload_close(upload);
    return status;
}

void skv_cuda_upload_close(skv_cuda_upload *upload)
{
    for (size_t i = 0; i < SKV_CUDA_PIECES && upload->device; i++) {
        skv_cuda_host_delete(upload->device, upload->pieces[i]);
        skv_cuda_event_delete(upload->device, upload->read[i]);
    }
    *upload = (skv_cuda_upload){.device = NULL};
}

/* An event that was never recorded has happened. */
unsigned char *skv_cuda_upload_piece(skv_cuda_upload *upload)
{
    skv_cuda_event_wait(upload->device, upload->read[upload->i]);
    return upload->pieces[upload->i];
}

void skv_cuda_upload_send(skv_cuda_upload *upload, void *to, size_t at, size_t n_bytes)
{
    assert(at + n_bytes <= SKV_CUDA_PIECE_BYTES);
    skv_cuda_put(upload->device, to, upload->pieces[upload->i] + at, n_bytes);
}

void skv_cuda_upload_turn(skv_cuda_upload *upload)
{
    skv_cuda_event_record(upload->device, upload->read[upload->i]);
    upload->i = (upload->i + 1) % SKV_CUDA_PIECES;
}
