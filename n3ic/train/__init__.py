"""Training of binarized MLPs: the Brevitas network, the exact fold, the estimator."""
