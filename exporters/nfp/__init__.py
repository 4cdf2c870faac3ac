"""Target ``nfp``: micro-C for the Netronome NFP4000."""
