/** Tensors and Arrow record batches handed between the runtimes of one process, without a copy. */
module dev.devexchange {
    exports dev.devexchange;
}
