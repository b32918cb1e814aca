"""Reports on a run: one document, rendered on the terminal, as Markdown and as an HTML page.

loading     stored run -> Material     the only module here that reads a database
sections/   Material -> sections of figures and tables, or the reason why a section is missing
building    Material -> Document: an audit, or a whole report
render_*    Document -> terminal, Markdown, HTML; values -> JSON
charts/     values -> Vega-Lite specifications; drawing: chart -> SVG and PNG; sketches: values -> characters
relations   two runs beside each other, configurations over time: values -> Document
writing     files
"""
