"""What people are told of the rendezvous: RdzvEvents become Kubernetes Events and node states."""
