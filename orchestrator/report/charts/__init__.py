"""Values in, Vega-Lite specifications out. Data rows stand beside the chart, by name: many marks then share them."""
