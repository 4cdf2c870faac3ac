"""Training: recipes, the choice of input bits, the binarized MLP, folding, polishing, baselines."""
