"""Sources of events: a live engine or a recorded file, behind one interface (`kvviz.sources.source.Source`)."""
