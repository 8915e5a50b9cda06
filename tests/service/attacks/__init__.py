"""What a hostile client can do to a daemon, one module for each kind. Every function does its harm to the daemon and
returns; whoever calls it looks whether others are served meanwhile (attacks.honest)."""
