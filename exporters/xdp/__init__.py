"""The target ``xdp``: meter, network and verdict in the Linux kernel."""
