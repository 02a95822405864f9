"""The rendezvous half: it owns the runs, holds the calls of their nodes, and keeps their states."""
