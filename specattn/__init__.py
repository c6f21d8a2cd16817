"""Spectral conditioning of attention: `condition`, `fold`, `corrections`, spectra and Jacobians."""
