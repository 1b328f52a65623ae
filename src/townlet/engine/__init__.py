"""The town as WebAssembly: the very kernels that train, a town's memory as they want it, and a network without BLAS."""
