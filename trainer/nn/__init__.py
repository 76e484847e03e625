"""Networks and distributions: tensors in, tensors out."""
