"""`make demo`: a real training on a real Kubernetes, and what becomes of it when its rank 0 is killed."""
