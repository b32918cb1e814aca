"""Values in, Altair charts out. Data rows are given beside the chart, by name: Altair then need not look into them."""
