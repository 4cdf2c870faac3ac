"""What cards on the XDP target need of the machine."""

from xdp_machine import clang, compile_bpf, in_namespace, kernel, veth

__all__ = ["clang", "compile_bpf", "in_namespace", "kernel", "veth"]
