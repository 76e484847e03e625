"""A model of one CUDA device on a processor, precise enough to find what a graph or a stream gets wrong.

The trainer's own lines run unchanged within `CudaModel`: tensors say that they lie on `cuda:0`, their numbers
are computed by the processor. Modelled are the order that streams and events make (`order`), graphs that are
captured without being executed and replayed without Python (`tape`), generators, and cuBLAS's workspaces.
Not modelled are the allocator's reuse of memory, NCCL, rounding of a GPU's kernels, and time.
"""

from tests.trainer.cuda_model.model import CudaModel

__all__ = ["CudaModel"]
