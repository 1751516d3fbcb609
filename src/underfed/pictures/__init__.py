"""Pictures of a recording or a trace: a report as one HTML file, as Markdown, and as a trace for Perfetto."""
