"""The target ``xdp``: meter, network and verdict in the Linux kernel.

Nothing is imported here: ``n3ic --help`` shows the commands of this target at once.
"""
