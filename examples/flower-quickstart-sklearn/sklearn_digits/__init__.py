"""Handwritten digits with scikit-learn and Flower."""
