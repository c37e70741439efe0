/* What the two processes of ipc.c have in common. */
#ifndef GPU_PEER_H_
#define GPU_PEER_H_

#define PEER_TENSOR "tensor"
enum { PEER_BYTES = 1 << 20 };

#endif
