"""Vega-Lite specifications made from values. Data rows are kept beside the chart, by name, so that marks share them."""
