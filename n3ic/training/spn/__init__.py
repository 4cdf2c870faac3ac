"""Training sum-product networks: structure and parameters from rows, folded into integers."""

from n3ic.training.spn.fold import fold_spn
from n3ic.training.spn.learn import RealSpn, learn_spn

__all__ = ["RealSpn", "fold_spn", "learn_spn"]
