"""A run as one page: pure builders of charts, sections and page from values, and a thin loader and writer around them.

loading     database -> Material       the only module that reads a database
timeline    rows -> trials in time order, the drift that the control shows
charts/     values -> Vega-Lite specifications
sections/   Material -> Report: sections of figures and tables, and what is left out and why
page        Report -> HTML;  markdown: Report -> Markdown;  drawing: chart -> SVG and PNG
writing     files
"""
