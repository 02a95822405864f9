"""The HTTPS face of the rendezvous: connections, TLS, HTTP, and who calls. Nothing is decided here."""
