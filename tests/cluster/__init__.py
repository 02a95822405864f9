"""A real Kubernetes on one machine, for the tests and the demo: see README.md in this folder."""
